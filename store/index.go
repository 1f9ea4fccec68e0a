package store

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/countmill/countmill"
)

// An Index puts counters into groups. A group is a counter whose name begins with
// countmill.GroupMark. It gets each increment of its counters in the commit that counts the increment.
//
// Increments that were folded without the index are the group's remainder. Each shard keeps how much of its
// count was folded with the index: the shard's grouped part. So at every moment
//
//	total of a group = sum of its shards + sum of (count - grouped) over the shards of its counters
//
// and the second term moves only while somebody folds without the index. After Since nobody does.
// The index is built by reading that term range by range after Since, and setting it (SetRemainders). A
// range can be read twice, late and by two workers at once, because a set has no effect twice.
//
// The states are those of App Engine's indexes: building, serving, deleting.
type Index struct {
	// Name is for people: 1 to 40 of a-z, 0-9, - and _.
	Name string `json:"name"`
	// Number is the version of the settings with which the index was created. No other index
	// of the database ever has it.
	Number int64 `json:"number"`
	// Match and Group are patterns: see ParseIndex.
	Match string `json:"match"`
	Group string `json:"group"`
	// Version is that of the newest settings that commits must know (Commit.Rules): with the creation
	// of the index, or with its deletion.
	Version int64 `json:"version"`
	// Since is the moment, by the store's clock, after which no commit is applied that was made with
	// an older Version.
	Since time.Time `json:"since"`
	// Serving is when the index was built; zero before.
	Serving time.Time `json:"serving,omitzero"`
	// Checked is when the oldest range was read last; zero before the index is built.
	Checked time.Time `json:"checked,omitzero"`
	// Ended is when the deletion of the index began; zero before.
	Ended time.Time `json:"ended,omitzero"`

	match, group *template
}

// The bounds of indexes.
const (
	// MaxIndexes is the most indexes, those being deleted included.
	MaxIndexes = 100

	// OwnIndexes is the most indexes of the counters of a creator limited to prefixes (IndexChange.Own), so that others
	// have room.
	OwnIndexes = 25

	// MaxGroups is the most indexes that can match one counter: each is one more sum in its commits.
	MaxGroups = 4

	maxIndexName = 40
)

// ErrNoIndex is the answer to a change of an index that does not exist. Nothing was changed.
var ErrNoIndex = errors.New("no such index")

// ParseIndex returns an index, not created yet, or a *countmill.FieldError.
//
// match names counters. It has text, variables in braces, and at its end perhaps a *: page:{site}:*. A
// variable is at least one byte of the name, up to the first place where the text after the
// variable comes. The * is the rest of the name, which may be empty. group has text and variables of
// match: site:{site}. It is the group's name without its first character.
func ParseIndex(name, match, group string) (Index, error) {
	x := Index{Name: name, Match: match, Group: group}
	if err := checkIndexName(name); err != nil {
		return Index{}, err
	}
	return x, x.Parse()
}

// Parse makes an index that was stored usable. The error is a *countmill.FieldError.
func (x *Index) Parse() (err error) {
	if x.match, err = parseTemplate("match", x.Match, true); err != nil {
		return err
	}
	if x.group, err = parseTemplate("group", x.Group, false); err != nil {
		return err
	}
	for _, v := range x.group.variables {
		if !slices.Contains(x.match.variables, v) {
			return &countmill.FieldError{Field: "group", Problem: "has the variable {" + v + "}", Limit: "variables of match"}
		}
	}
	wrong := func(field, problem, limit string) error {
		return &countmill.FieldError{Field: field, Problem: problem, Limit: limit}
	}
	switch {
	case strings.HasPrefix(x.Match, " "):
		return wrong("match", "begins with a space", "no leading space")
	case strings.HasPrefix(x.Group, " "):
		return wrong("group", "begins with a space", "no leading space")
	case countmill.IsGroup(x.Match):
		return wrong("match", "matches groups", "counters that can be incremented")
	case countmill.IsGroup(x.Group):
		return wrong("group", "begins with "+countmill.GroupMark, "the name without it: countmill puts it before each group")
	case strings.HasPrefix(x.Group, overflowed) || x.Group == "":
		return wrong("group", "is empty or begins with "+overflowed, "a name of groups, such as site:{site}")
	}
	return nil
}

var indexName = regexp.MustCompile(fmt.Sprintf("^[a-z0-9_-]{1,%d}$", maxIndexName))

func checkIndexName(name string) error {
	if indexName.MatchString(name) {
		return nil
	}
	return &countmill.FieldError{Field: "name", Problem: "is no name of an index", Limit: "1 to 40 of a-z, 0-9, - and _"}
}

const overflowed = "overflow:"

// Overflow is the group of counters whose own group has no valid name: one of more than
// countmill.MaxCounterName bytes, with a space at its end, or like that of an Overflow.
func (x *Index) Overflow() string { return countmill.GroupMark + overflowed + x.Name }

// Prefix is the text with which the names of all counters of the index begin.
func (x *Index) Prefix() string { return x.match.texts[0] }

// GroupPrefix is the text with which the names of all groups begin, but for Overflow.
func (x *Index) GroupPrefix() string { return countmill.GroupMark + x.group.texts[0] }

// GroupPrefixes are the texts with which the names of all groups begin, Overflow included. No name begins
// with two of them: where groups begin with a variable, the first one has Overflow too.
func (x *Index) GroupPrefixes() []string {
	if strings.HasPrefix(x.Overflow(), x.GroupPrefix()) {
		return []string{x.GroupPrefix()}
	}
	return []string{x.GroupPrefix(), x.Overflow()}
}

// HasGroup reports whether the name is one of the index's groups.
func (x *Index) HasGroup(name string) bool {
	return strings.HasPrefix(name, x.GroupPrefix()) && !IsOverflow(name) || name == x.Overflow()
}

// IsOverflow reports whether the group is the Overflow of an index.
func IsOverflow[Name string | []byte](group Name) bool {
	const prefix = countmill.GroupMark + overflowed
	return len(group) >= len(prefix) && string(group[:len(prefix)]) == prefix
}

// AppendGroup appends the name of the counter's group to dst. It reports false if the index has not the
// counter.
func (x *Index) AppendGroup(dst []byte, counter string) ([]byte, bool) {
	var values [MaxVariables]string
	if !x.match.values(counter, &values) {
		return dst, false
	}
	begin := len(dst)
	dst = append(append(dst, countmill.GroupMark...), x.group.texts[0]...)
	for i, text := range x.group.texts[1:] {
		dst = append(append(dst, values[slices.Index(x.match.variables, x.group.variables[i])]...), text...)
	}
	// A name made of valid names and patterns meets every other demand of CheckName.
	if made := dst[begin:]; len(made) > countmill.MaxCounterName || made[len(made)-1] == ' ' || IsOverflow(made) {
		dst = append(dst[:begin], x.Overflow()...)
	}
	return dst, true
}

// GroupOf returns the counter's group. It reports false if the index has not the counter.
func (x *Index) GroupOf(counter string) (string, bool) {
	name, ok := x.AppendGroup(nil, counter)
	return string(name), ok
}

// Has reports whether the index has the counter. No index has a group.
func (x *Index) Has(counter string) bool {
	var values [MaxVariables]string
	return x.match.values(counter, &values)
}

func (r *Rules) indexes() []Index {
	if r == nil {
		return nil
	}
	return r.Indexes
}

// Unfinished is the number of indexes that are being built or deleted.
func (r *Rules) Unfinished() (n int) {
	for _, x := range r.indexes() {
		if !x.Finished() {
			n++
		}
	}
	return n
}

// Finished reports whether the index is built, and not being deleted.
func (x *Index) Finished() bool { return !x.Serving.IsZero() && x.InForce() }

// InForce reports whether folds go by the index.
func (x *Index) InForce() bool { return x.Ended.IsZero() }

// Ended reports whether the rules have the index, under its number, and its deletion has begun.
func (r *Rules) Ended(x *Index) bool {
	found := r.Index(x.Name)
	return found != nil && found.Number == x.Number && !found.InForce()
}

// Indexed reports whether an index has the counter, including an index that is being deleted.
func (r *Rules) Indexed(counter string) bool {
	return slices.ContainsFunc(r.indexes(), func(x Index) bool { return x.Has(counter) })
}

// Kept reports whether sweeps leave the counter when it is deleted: an index has it, or a rule for the
// journal is in force, whose records a recount compares with its shards.
func (r *Rules) Kept(counter string) bool { return r.Indexed(counter) || r.JournalOf(counter) != nil }

// IndexOf returns the index that has the group, or nil.
func (r *Rules) IndexOf(group string) *Index {
	if !countmill.IsGroup(group) {
		return nil
	}
	return r.find(func(x *Index) bool { return x.HasGroup(group) })
}

// Numbered returns the index with that number, or nil.
func (r *Rules) Numbered(number int64) *Index {
	return r.find(func(x *Index) bool { return x.Number == number })
}

// Index returns the index of that name, or nil.
func (r *Rules) Index(name string) *Index {
	return r.find(func(x *Index) bool { return x.Name == name })
}

func (r *Rules) find(is func(*Index) bool) *Index {
	for i := range r.indexes() {
		if is(&r.Indexes[i]) {
			return &r.Indexes[i]
		}
	}
	return nil
}
