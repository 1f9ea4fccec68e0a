package countmill

import (
	"strings"
	"unicode/utf8"
)

// MaxCounterName is the longest name of a counter, in bytes.
const MaxCounterName = 500

// MaxShards is the most shards of a counter: its record and its shards then still fit one look-up
// of 1,000 keys.
const MaxShards = 999

// GroupMark begins the names of groups, and of nothing else. A group is a counter that gets the
// increments of other counters. It is read as they are, and nobody increments it.
const GroupMark = "="

// IsGroup reports whether the name is that of a group.
func IsGroup(name string) bool { return strings.HasPrefix(name, GroupMark) }

// CheckCounter reports whether increments can name the counter: CheckName, and not a group. The error is
// a *FieldError that matches ErrInvalid.
func CheckCounter(name string) error {
	if IsGroup(name) {
		return &FieldError{Field: "counter", Problem: "begins with " + GroupMark + ", as groups do", Limit: "a counter that is no group"}
	}
	return CheckName(name)
}

// CheckName reports whether name can name a counter or a group. Names are compared byte by
// byte: 1 to MaxCounterName bytes of valid UTF-8 without control characters, without
// a leading or trailing space, and not of the form __x__, which Datastore reserves.
// The error is a *FieldError that matches ErrInvalid.
func CheckName(name string) error {
	switch {
	case name == "":
		return &FieldError{Field: "counter", Problem: "is empty", Limit: "1 to 500 bytes"}
	case len(name) > MaxCounterName:
		return &FieldError{Field: "counter", Problem: "is too long", Limit: "1 to 500 bytes"}
	}
	if isPlainASCII(name) {
		return checkEdges(name)
	}
	if !utf8.ValidString(name) {
		return &FieldError{Field: "counter", Problem: "is not valid UTF-8", Limit: "valid UTF-8"}
	}
	for _, r := range name {
		if isControl(r) {
			return &FieldError{Field: "counter", Problem: "holds a control character", Limit: "no control characters"}
		}
	}
	return checkEdges(name)
}

// isPlainASCII reports whether the name is printable ASCII, as nearly all names are. It saves
// decoding them.
func isPlainASCII(name string) bool {
	for i := range len(name) {
		if c := name[i]; c < 0x20 || c >= 0x7f {
			return false
		}
	}
	return true
}

func isControl(r rune) bool { return r < 0x20 || r >= 0x7f && r < 0xa0 }

func checkEdges(name string) error {
	if name[0] == ' ' || name[len(name)-1] == ' ' {
		return &FieldError{Field: "counter", Problem: "begins or ends with a space", Limit: "no leading or trailing space"}
	}
	if len(name) >= 4 && strings.HasPrefix(name, "__") && strings.HasSuffix(name, "__") {
		return &FieldError{Field: "counter", Problem: "has the reserved form __x__", Limit: "not __x__"}
	}
	return nil
}
