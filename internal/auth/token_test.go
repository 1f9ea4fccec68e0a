package auth

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// newToken makes a valid token.
func newToken(t *testing.T, token Token) (string, Token) {
	t.Helper()
	secret, token, err := New(token)
	must(t, err)
	return secret, token
}

func TestNewTokensAreRandomAndKeptAsAHash(t *testing.T) {
	t.Parallel()
	seen := make(map[string]bool)
	for range 100 {
		secret, token := newToken(t, Token{Name: "web", Scopes: []Scope{Read}})
		if seen[secret] || len(secret) != len(mark)+43 || !strings.HasPrefix(secret, mark) {
			t.Fatalf("got %q, want cmtok_ and 43 new characters", secret)
		}
		seen[secret] = true
		sum := sha256.Sum256([]byte(secret))
		if want := hex.EncodeToString(sum[:]); !strings.Contains(token.Line(), `"hash":"sha256:`+want+`"`) {
			t.Errorf("line %s does not hold the SHA-256 %s of the whole token", token.Line(), want)
		}
		if strings.Contains(token.Line(), secret[len(mark):]) {
			t.Errorf("line %s holds the token", token.Line())
		}
	}
}

func TestLinesAreReadAsTheyWereWritten(t *testing.T) {
	t.Parallel()
	for _, want := range []Token{
		{Name: "a", Scopes: []Scope{Publish}},
		{Name: "A.b_c-9", Scopes: Scopes(), Prefixes: []string{"page:", "a \"b\" é\t", "#"}},
		{Name: "a", Scopes: []Scope{Metrics}, Expires: time.Date(2031, 2, 3, 4, 5, 6, 0, time.UTC)},
		{Name: "a", Scopes: []Scope{Publish}, Limits: Limits{Increments: 1, Bytes: maxPerSecond, NewCounters: maxNewCounters}},
		{Name: "a", Scopes: []Scope{Read, Publish}, Limits: Limits{Bytes: 1 << 20}},
	} {
		_, want := newToken(t, want)
		text := "# tokens\n\n  " + want.Line() + "\r\n"
		got, err := Parse([]byte(text))
		if diff := cmp.Diff([]Token{want}, got, cmp.AllowUnexported(Token{}), cmpopts.EquateEmpty()); diff != "" || err != nil {
			t.Errorf("%s: error %v, differs (-written +read):\n%s", text, err, diff)
		}
		if (got[0].Prefixes == nil) != (want.Prefixes == nil) {
			t.Errorf("%s: prefixes are %v, want %v", text, got[0].Prefixes, want.Prefixes)
		}
	}
}

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	many := strings.Split(strings.Repeat("x,", 101), ",")[:101]
	for want, token := range map[string]Token{
		"name: is empty (limit: 1 to 64 bytes)":                             {Name: "", Scopes: []Scope{Read}},
		"name: has other characters than A-Z a-z 0-9 . _ -":                 {Name: "a b", Scopes: []Scope{Read}},
		"name: is too long (limit: 1 to 64 bytes)":                          {Name: strings.Repeat("a", 65), Scopes: []Scope{Read}},
		"name: looks like a token":                                          {Name: "cmtok_abc", Scopes: []Scope{Read}},
		"scopes: the list is empty":                                         {Name: "a"},
		"scopes: number 2 is not a scope (limit: pub":                       {Name: "a", Scopes: []Scope{Read, "write"}},
		"scopes: read is listed twice":                                      {Name: "a", Scopes: []Scope{Read, Read}},
		"prefixes: the list is empty":                                       {Name: "a", Scopes: []Scope{Read}, Prefixes: []string{}},
		"prefixes: number 2 is empty":                                       {Name: "a", Scopes: []Scope{Read}, Prefixes: []string{"a", ""}},
		"prefixes: number 1 is too long":                                    {Name: "a", Scopes: []Scope{Read}, Prefixes: []string{strings.Repeat("a", 501)}},
		"prefixes: number 1 is not valid UTF":                               {Name: "a", Scopes: []Scope{Read}, Prefixes: []string{"\xff"}},
		"prefixes: number 2 is listed twice":                                {Name: "a", Scopes: []Scope{Read}, Prefixes: []string{"a", "a"}},
		"prefixes: there are 101":                                           {Name: "a", Scopes: []Scope{Read}, Prefixes: many},
		"increments_per_second: must be an integer from 1 to 1000000000000": {Name: "a", Scopes: []Scope{Publish}, Limits: Limits{Increments: -1}},
		"new_counters_per_hour: must be an integer from 1 to 10000000":      {Name: "a", Scopes: []Scope{Publish}, Limits: Limits{NewCounters: maxNewCounters + 1}},
		"bytes_per_second: limits counting, but the scopes lack publish":    {Name: "a", Scopes: []Scope{Read}, Limits: Limits{Bytes: 1}},
	} {
		secret, _, err := New(token)
		if err == nil || !strings.Contains(err.Error(), want) || secret != "" {
			t.Errorf("%+v: got %q, error %v; want no token and %q", token, secret, err, want)
		}
	}
}

// Errors name the line but quote nothing of it: it may be a token that somebody put in the wrong place.
func TestParseRefuses(t *testing.T) {
	t.Parallel()
	secret, token := newToken(t, Token{Name: "a", Scopes: []Scope{Read}})
	good := token.Line()
	change := func(old, with string) string { return strings.Replace(good, old, with, 1) }
	hash := token.hashText()
	for _, tc := range []struct{ text, want string }{
		{good + "\n" + good, "line 2: hash: is listed twice"},
		{"\n#\n" + secret, "line 3: is not a JSON object"},
		{`["` + secret + `"]`, "line 1: is not a JSON object"},
		{change(hash, secret), "line 1: hash: must be sha256: and 64 hex digits"},
		{change(hash, "sha256:"+secret), "hash: must be"},
		{change(hash, hash[:len(hash)-1]), "hash: must be"},
		{change(hash, hash+"0"), "hash: must be"},
		{change(hash, hash[len("sha256:"):]), "hash: must be"},
		{change(`"hash"`, `"Hash"`), "unknown field"},
		{change(`"hash"`, `"`+secret+`"`), "unknown field"},
		{change(`"name":"a"`, `"name":"`+secret+`x"`), "name: looks like a token"},
		{change(`"name":"a"`, `"name":"a","name":"b"`), "a field is given twice"},
		{change(`"name":"a"`, `"name":7`), "name: is of the wrong type"},
		{change(`["read"]`, `"read"`), "scopes: is of the wrong type"},
		{change(`["read"]`, `["read","`+secret+`"]`), "scopes: number 2 is not a scope"},
		{change(`["read"]`, `["read"],"prefixes":null`), "prefixes: must be an array"},
		{change(`["read"]`, `["read"],"prefixes":[null]`), "prefixes: number 1 is empty"},
		{change(`["read"]`, `["read"],"prefixes":"`+secret+`"`), "prefixes: must be an array"},
		{change(`["read"]`, `["read"],"expires":null`), "expires: must be like"},
		{change(`["read"]`, `["read"],"expires":"2027-01-01"`), "expires: must be like"},
		{change(`["read"]`, `["read"],"expires":"0001-01-01T00:00:00Z"`), "expires: must be like"},
		{change(`["read"]`, `["publish"],"increments_per_second":0`), "increments_per_second: must be an integer from 1"},
		{change(`["read"]`, `["publish"],"bytes_per_second":-0`), "bytes_per_second: must be an integer from 1"},
		{change(`["read"]`, `["publish"],"bytes_per_second":null`), "bytes_per_second: must be an integer from 1"},
		{change(`["read"]`, `["publish"],"bytes_per_second":"7"`), "bytes_per_second: must be an integer from 1"},
		{change(`["read"]`, `["publish"],"new_counters_per_hour":1.5`), "new_counters_per_hour: must be an integer from 1"},
		{change(`["read"]`, `["publish"],"new_counters_per_hour":10000001`), "new_counters_per_hour: must be an integer from 1 to 10000000"},
		{good + "}", "line 1: is not a JSON object"},
		{strings.Repeat("#", maxFile+1), "it is over 1048576 bytes"},
	} {
		tokens, err := Parse([]byte(tc.text))
		if err == nil || tokens != nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%.300s: got %v, error %v; want %q", tc.text, tokens, err, tc.want)
		}
		if err != nil && strings.Contains(err.Error(), secret[len(mark):]) {
			t.Errorf("%.300s: the error shows the token: %v", tc.text, err)
		}
	}
}

func TestTooManyTokens(t *testing.T) {
	t.Parallel()
	var text strings.Builder
	for range maxTokens {
		_, token := newToken(t, Token{Name: "a", Scopes: []Scope{Read}})
		text.WriteString(token.Line() + "\n")
	}
	if tokens, err := Parse([]byte(text.String())); err != nil || len(tokens) != maxTokens {
		t.Errorf("%d tokens: got %d, %v", maxTokens, len(tokens), err)
	}
	_, token := newToken(t, Token{Name: "a", Scopes: []Scope{Read}})
	if _, err := Parse([]byte(text.String() + token.Line())); err == nil {
		t.Errorf("%d tokens: got no error", maxTokens+1)
	}
}

func TestRedact(t *testing.T) {
	t.Parallel()
	secret, _ := newToken(t, Token{Name: "a", Scopes: []Scope{Read}})
	for text, want := range map[string]string{
		"":                         "",
		"page:/home":               "page:/home",
		secret:                     "cmtok_...",
		"x=" + secret + "&" + "y":  "x=cmtok_...&y",
		"/v1/" + secret[:20] + "/": "/v1/cmtok_.../",
		secret + " " + secret:      "cmtok_... cmtok_...",
		"cmtok_":                   "cmtok_",
	} {
		if got := Redact(text); got != want {
			t.Errorf("Redact(%q) is %q, want %q", text, got, want)
		}
	}
}
