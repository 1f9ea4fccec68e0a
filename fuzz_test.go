package countmill

import (
	"regexp"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

var reserved = regexp.MustCompile(`(?s)^__.*__$`)

// FuzzCheckCounter compares CheckCounter with a second implementation of the same rule.
func FuzzCheckCounter(f *testing.F) {
	for _, name := range []string{"a", "", " a", "a ", "__a__", "____", "___", "é", "a\u0085", "a\x7f", "\xff", "\u2028", "\ufffd",
		strings.Repeat("x", MaxCounterName), strings.Repeat("é", MaxCounterName/2) + "x"} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		text := utf8.ValidString(name) && !strings.ContainsFunc(name, unicode.IsControl)
		want := text && name != "" && len(name) <= 500 && strings.Trim(name, " ") == name && !reserved.MatchString(name)
		if err := CheckCounter(name); (err == nil) != want {
			t.Errorf("%q: got %v, want it taken: %t", name, err, want)
		}
		want = text && name != "" && len(name) <= 128
		if err := CheckID("id", name); (err == nil) != want {
			t.Errorf("id %q: got %v, want it taken: %t", name, err, want)
		}
	})
}
