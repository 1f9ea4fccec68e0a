package httpserver

import (
	"encoding/base64"
	"strings"

	"github.com/countmill/countmill"
)

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
