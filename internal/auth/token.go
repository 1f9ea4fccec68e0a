package auth

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/countmill/countmill"
)

// mark begins every token, so that people and scanners recognise a misplaced one.
const mark = "cmtok_"

// maxSecret is the longest text that is checked as a token; tokens have 49 bytes.
const maxSecret = 256

// A Token is a line of the file.
type Token struct {
	Name     string
	Scopes   []Scope
	Prefixes []string  // nil: all counters
	Expires  time.Time // zero: never
	Limits   Limits    // zero: none
	// Public lets everybody see badges of the counters under Prefixes, without a token. It needs the
	// scope read and prefixes.
	Public bool
	hash   [sha256.Size]byte
	quota  *quota        // of a current token that has limits
	used   *atomic.Int64 // when a current token was last used, Unix seconds; 0 for not yet
}

// New makes a token. The secret is for its owner, and is stored nowhere. The error says which field of
// t is invalid.
func New(t Token) (secret string, token Token, err error) {
	if err := t.check(); err != nil {
		return "", Token{}, err
	}
	var random [32]byte
	_, _ = rand.Read(random[:]) // it never fails
	secret = mark + base64.RawURLEncoding.EncodeToString(random[:])
	t.hash = sha256.Sum256([]byte(secret))
	return secret, t, nil
}

const maxName = 64

var nameForm = regexp.MustCompile(`^[A-Za-z0-9._-]+$`)

// check returns an error that quotes no field: one of them may be a misplaced secret.
func (t Token) check() error {
	switch {
	case t.Name == "":
		return fmt.Errorf("name: is empty (limit: 1 to %d bytes)", maxName)
	case len(t.Name) > maxName:
		return fmt.Errorf("name: is too long (limit: 1 to %d bytes)", maxName)
	case !nameForm.MatchString(t.Name):
		return fmt.Errorf("name: has other characters than A-Z a-z 0-9 . _ -")
	case strings.HasPrefix(t.Name, mark):
		return fmt.Errorf("name: looks like a token (begins with %s)", mark)
	}
	if err := checkScopes(t.Scopes); err != nil {
		return err
	}
	if err := t.Limits.check(t.Scopes); err != nil {
		return err
	}
	if t.Public && (!t.has(Read) || t.Prefixes == nil) {
		return fmt.Errorf("public: needs the scope read, and prefixes")
	}
	return checkPrefixes(t.Prefixes)
}

// maxPrefixes bounds the comparisons for each counter of a request.
const maxPrefixes = 100

func checkPrefixes(prefixes []string) error {
	switch {
	case prefixes != nil && len(prefixes) == 0:
		return fmt.Errorf("prefixes: the list is empty; leave the field out for all counters")
	case len(prefixes) > maxPrefixes:
		return fmt.Errorf("prefixes: there are %d (limit: %d)", len(prefixes), maxPrefixes)
	}
	for i, p := range prefixes {
		switch {
		case p == "":
			return fmt.Errorf("prefixes: number %d is empty; leave the field out for all counters", i+1)
		case len(p) > countmill.MaxCounterName:
			return fmt.Errorf("prefixes: number %d is too long (limit: %d bytes)", i+1, countmill.MaxCounterName)
		case !utf8.ValidString(p):
			return fmt.Errorf("prefixes: number %d is not valid UTF-8", i+1)
		case slices.Contains(prefixes[:i], p):
			return fmt.Errorf("prefixes: number %d is listed twice", i+1)
		}
	}
	return nil
}

func (t *Token) has(s Scope) bool { return slices.Contains(t.Scopes, s) }

const hashForm = "sha256:"

func (t *Token) hashDigits() string { return hex.EncodeToString(t.hash[:]) }

func (t *Token) hashText() string { return hashForm + t.hashDigits() }

// ID is the first 8 digits of the token's hash. It distinguishes tokens of one name.
func (t *Token) ID() string { return t.hashDigits()[:8] }

// Expired reports whether the token is valid no more.
func (t *Token) Expired(now time.Time) bool { return !t.Expires.IsZero() && !now.Before(t.Expires) }

func (t *Token) setHash(text string) error {
	digits, ok := strings.CutPrefix(text, hashForm)
	n, err := hex.Decode(t.hash[:], []byte(digits[:min(len(digits), 2*sha256.Size)]))
	if !ok || err != nil || n != sha256.Size || len(digits) != 2*sha256.Size {
		return fmt.Errorf("hash: must be sha256: and 64 hex digits; `countmill token new` writes such a line")
	}
	return nil
}

var tokenForm = regexp.MustCompile(mark + `[A-Za-z0-9_-]+`)

// Redact replaces tokens, and pieces of tokens, in a text for people or logs.
func Redact(text string) string {
	if !strings.Contains(text, mark) { // nearly every text
		return text
	}
	return tokenForm.ReplaceAllLiteralString(text, mark+"...")
}
