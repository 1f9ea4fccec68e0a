package httpserver

import (
	"encoding/base64"
	"strconv"
	"strings"

	"github.com/countmill/countmill"
)

// Limit is the parameter limit, from 1 to most; fallback if there is none.
func (p Params) Limit(fallback, most int) (int, error) {
	if !p.Has("limit") {
		return fallback, nil
	}
	n, err := strconv.Atoi(p.Get("limit"))
	if err != nil || n < 1 || n > most {
		return 0, &countmill.FieldError{Field: "limit", Problem: "is not a number in range", Limit: "1 to " + strconv.Itoa(most)}
	}
	return n, nil
}

// tokenVersion is the start of a decoded page token, so that the meaning of tokens can change.
const tokenVersion = "1"

// PageToken returns the token of the next page, which begins after the position after. At the
// end after is empty, and so is the token.
func PageToken(after string) string {
	if after == "" {
		return ""
	}
	return base64.RawURLEncoding.EncodeToString([]byte(tokenVersion + after))
}

// After returns the position in the parameter page_token; empty if there is none. check
// refuses a position that PageToken was never given.
func (p Params) After(check func(after string) error) (string, error) {
	if !p.Has("page_token") {
		return "", nil
	}
	return ParsePageToken(p.Get("page_token"), check)
}

// ParsePageToken is the inverse of PageToken.
func ParsePageToken(token string, check func(after string) error) (string, error) {
	text, err := base64.RawURLEncoding.Strict().DecodeString(token)
	after, ok := strings.CutPrefix(string(text), tokenVersion)
	if err != nil || !ok || after == "" || check(after) != nil {
		return "", &countmill.FieldError{Field: "page_token", Problem: "is not a page token of this endpoint", Limit: "the next_page_token of the page before"}
	}
	return after, nil
}
