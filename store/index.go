package store

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/countmill/countmill"
)

// An Index puts counters into groups. A group is a counter whose name begins with
// countmill.GroupMark. It gets each increment of its counters in the commit that counts the increment.
//
// Increments that were folded without the index are the group's rest. Each shard keeps how much of its
// count was folded with the index: the shard's grouped part. So at every moment
//
//	total of a group = sum of its shards + sum of (count - grouped) over the shards of its counters
//
// and the second term moves only while somebody folds without the index. After Since nobody does.
// The index is built by reading that term piece by piece after Since, and setting it (SetRests). A
// piece can be read twice, late and by two workers at once, because a set has no effect twice.
//
// The states are those of App Engine's indexes: building, serving, deleting.
type Index struct {
	// Name is for people: 1 to 40 of a-z, 0-9, - and _.
	Name string
	// Number is the version of the settings with which the index was created. No other index
	// of the database ever has it.
	Number int64
	// Match and Group are patterns: see ParseIndex.
	Match, Group string
	// Version is that of the newest settings that commits must know (Commit.Rules): with the creation
	// of the index, or with its deletion.
	Version int64
	// Since is the moment, by the store's clock, after which no commit is applied that was made with
	// an older Version.
	Since time.Time
	// Serving is when the index was built; zero before.
	Serving time.Time
	// Checked is when the oldest piece was read last; zero before the index is built.
	Checked time.Time
	// Ended is when the deletion of the index began; zero before.
	Ended time.Time

	match, group *template
}

// The bounds of indexes.
const (
	// MaxIndexes is the most indexes, those being deleted included.
	MaxIndexes = 100

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
	if !isIndexName(name) {
		return Index{}, &countmill.FieldError{Field: "name", Problem: "names no index", Limit: "1 to 40 of a-z, 0-9, - and _"}
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
	if strings.HasPrefix(x.Match, countmill.GroupMark) {
		return &countmill.FieldError{Field: "match", Problem: "matches groups", Limit: "counters that can be incremented"}
	}
	if strings.HasPrefix(x.Group, overflowed) || x.Group == "" {
		return &countmill.FieldError{Field: "group", Problem: "is empty or begins with " + overflowed, Limit: "a name of groups, such as site:{site}"}
	}
	return nil
}

func isIndexName(name string) bool {
	for i := range len(name) {
		c := name[i]
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' && c != '_' {
			return false
		}
	}
	return name != "" && len(name) <= maxIndexName
}

const overflowed = "overflow:"

var overflowedGroup = []byte(countmill.GroupMark + overflowed)

// Overflow is the group of counters whose own group has no valid name: one of more than
// countmill.MaxCounterName bytes, with a space at its end, or like that of an Overflow.
func (x *Index) Overflow() string { return countmill.GroupMark + overflowed + x.Name }

// Prefix is the text with which the names of all counters of the index begin.
func (x *Index) Prefix() string { return x.match.texts[0] }

// GroupPrefix is the text with which the names of all groups begin, but for Overflow.
func (x *Index) GroupPrefix() string { return countmill.GroupMark + x.group.texts[0] }

// HasGroup reports whether the name is one of the index's groups.
func (x *Index) HasGroup(name string) bool {
	return strings.HasPrefix(name, x.GroupPrefix()) && !isOverflow(name) || name == x.Overflow()
}

func isOverflow(group string) bool {
	return strings.HasPrefix(group, countmill.GroupMark+overflowed)
}

// has reports whether the index has the counter, and finds the variables in its name. No index has
// groups: their counters have the same increments.
func (x *Index) has(counter string, values *[MaxVariables]string) bool {
	return !countmill.IsGroup(counter) && x.match.values(counter, values)
}

// AppendGroup appends the name of the counter's group to dst. It reports false if the index has not the
// counter.
func (x *Index) AppendGroup(dst []byte, counter string) ([]byte, bool) {
	var values [MaxVariables]string
	if !x.has(counter, &values) {
		return dst, false
	}
	begin := len(dst)
	dst = append(append(dst, countmill.GroupMark...), x.group.texts[0]...)
	for i, text := range x.group.texts[1:] {
		dst = append(append(dst, values[slices.Index(x.match.variables, x.group.variables[i])]...), text...)
	}
	// What else CheckName demands a name has that is made of valid names and patterns.
	if made := dst[begin:]; len(made) > countmill.MaxCounterName || made[len(made)-1] == ' ' || bytes.HasPrefix(made, overflowedGroup) {
		dst = append(dst[:begin], x.Overflow()...)
	}
	return dst, true
}

// GroupOf returns the counter's group. It reports false if the index has not the counter.
func (x *Index) GroupOf(counter string) (string, bool) {
	name, ok := x.AppendGroup(nil, counter)
	return string(name), ok
}

// InForce reports whether folds go by the index.
func (x *Index) InForce() bool { return x.Ended.IsZero() }

// A template is a pattern of Index: texts[0], variables[0], texts[1] and so on. Only the last text can
// be empty, beside the first.
type template struct {
	texts, variables []string
	any              bool // * at the end
}

// MaxVariables is the most variables of a pattern.
const MaxVariables = 8

func parseTemplate(field, pattern string, wild bool) (*template, error) {
	wrong := func(problem string) (*template, error) {
		limit := "text and variables such as {site}, with text between two variables"
		if wild {
			limit += ", and * only at the end"
		}
		return nil, &countmill.FieldError{Field: field, Problem: problem, Limit: limit}
	}
	t := new(template)
	text := pattern
	if wild {
		text, t.any = strings.CutSuffix(text, "*")
	}
	for {
		before, rest, opened := strings.Cut(text, "{")
		if strings.ContainsAny(before, "*}") {
			return wrong("has a * or } out of place")
		}
		if before == "" && len(t.variables) > 0 && (opened || t.any) {
			return wrong("has a variable without text after it")
		}
		if t.texts = append(t.texts, before); !opened {
			break
		}
		name, after, closed := strings.Cut(rest, "}")
		if !closed || !isIndexName(name) || slices.Contains(t.variables, name) && wild {
			return wrong("has a variable without a name of its own")
		}
		t.variables, text = append(t.variables, name), after
	}
	switch {
	case len(t.variables) > MaxVariables:
		return wrong(fmt.Sprintf("has more than %d variables", MaxVariables))
	case countmill.CheckName("x"+pattern+"x") != nil:
		return wrong("is longer than 498 bytes, or no valid UTF-8")
	}
	return t, nil
}

// values finds the variables in a counter's name. No pattern has groups.
func (t *template) values(name string, values *[MaxVariables]string) bool {
	rest, ok := strings.CutPrefix(name, t.texts[0])
	if !ok || countmill.IsGroup(name) {
		return false
	}
	for i, text := range t.texts[1:] {
		end := len(rest) // the last variable takes the rest
		if text != "" {
			if rest == "" {
				return false
			}
			at := strings.Index(rest[1:], text)
			if at < 0 {
				return false
			}
			end = 1 + at
		}
		if end == 0 {
			return false
		}
		values[i], rest = rest[:end], rest[end+len(text):]
	}
	return rest == "" || t.any
}

// An IndexStep is a change of an index.
type IndexStep int

// The steps of an index, in their order.
const (
	CreateIndex IndexStep = 1 + iota
	ServeIndex            // it is built, or was checked again
	DeleteIndex           // folds stop going by it, and its groups are removed
	RemoveIndex           // nothing of it is left
)

// An IndexChange is one step of an index.
type IndexChange struct {
	Step IndexStep
	// Index has the Name; for CreateIndex also Match and Group; for ServeIndex and RemoveIndex also Number,
	// because another index may have the name by now; for ServeIndex also Checked.
	Index Index
}

// changeIndexes is ChangeRules for an index.
func (s Settings) changeIndexes(c *IndexChange, now time.Time, settle time.Duration) (Settings, error) {
	var indexes []Index
	if s.Rules != nil {
		indexes = slices.Clone(s.Rules.Indexes)
	}
	at := slices.IndexFunc(indexes, func(x Index) bool { return x.Name == c.Index.Name })
	next := Index{}
	if at >= 0 {
		next = indexes[at]
	}
	switch numbered := c.Step == ServeIndex || c.Step == RemoveIndex; {
	case c.Step == CreateIndex && at >= 0:
		if next.Match != c.Index.Match || next.Group != c.Index.Group || !next.InForce() {
			return s, &countmill.FieldError{Field: "name", Problem: "is taken by another index", Limit: "delete it first, and wait until it is gone"}
		}
		return s, nil
	case c.Step == CreateIndex:
		return s.createIndex(indexes, c.Index, now, settle)
	case at < 0 && c.Step == RemoveIndex, numbered && at >= 0 && next.Number != c.Index.Number && c.Step == RemoveIndex:
		return s, nil // it is gone
	case at < 0, numbered && next.Number != c.Index.Number:
		return s, fmt.Errorf("%w: %q", ErrNoIndex, c.Index.Name)
	case c.Step == ServeIndex && (!next.InForce() || !c.Index.Checked.After(next.Checked)):
		return s, nil
	case c.Step == ServeIndex:
		if next.Checked = c.Index.Checked; next.Serving.IsZero() {
			next.Serving = now
		}
	case c.Step == DeleteIndex && !next.InForce():
		return s, nil
	case c.Step == DeleteIndex:
		next.Ended, next.Version, next.Since = now, s.Version+1, now.Add(settle)
	case c.Step == RemoveIndex && next.InForce():
		return s, fmt.Errorf("%w: %q is not being deleted", ErrNoIndex, c.Index.Name)
	default:
		return s.withIndexes(slices.Delete(indexes, at, at+1)), nil
	}
	indexes[at] = next
	return s.withIndexes(indexes), nil
}

func (s Settings) createIndex(indexes []Index, wanted Index, now time.Time, settle time.Duration) (Settings, error) {
	x, err := ParseIndex(wanted.Name, wanted.Match, wanted.Group)
	if err != nil {
		return s, err
	}
	if len(indexes) == MaxIndexes {
		return s, &countmill.FieldError{Field: "name", Problem: "is one index too many", Limit: fmt.Sprintf("%d indexes, those being deleted included", MaxIndexes)}
	}
	for i := range indexes {
		// The groups of two indexes would be one counter, and the deletion of one index would take it.
		if a, b := x.GroupPrefix(), indexes[i].GroupPrefix(); strings.HasPrefix(a, b) || strings.HasPrefix(b, a) {
			return s, &countmill.FieldError{Field: "group", Problem: "can be a group of index " + indexes[i].Name, Limit: "groups of two indexes begin with different text"}
		}
	}
	x.Number, x.Version, x.Since = s.Version+1, s.Version+1, now.Add(settle)
	indexes = append(indexes, x)
	for i := range indexes {
		n := 0
		for j := range indexes {
			if strings.HasPrefix(indexes[i].Prefix(), indexes[j].Prefix()) {
				n++
			}
		}
		if n > MaxGroups {
			return s, &countmill.FieldError{Field: "match", Problem: "begins as too many other indexes do", Limit: fmt.Sprintf("%d indexes for counters that begin with %q", MaxGroups, indexes[i].Prefix())}
		}
	}
	slices.SortFunc(indexes, func(a, b Index) int { return cmp.Compare(a.Name, b.Name) })
	return s.withIndexes(indexes), nil
}

func (s Settings) withIndexes(indexes []Index) Settings {
	rules := Rules{Indexes: indexes}
	if s.Rules != nil {
		rules.Series = s.Rules.Series
	}
	return s.with(rules)
}

// Oldest is the version of the oldest settings by which a commit may be made (Commit.Rules).
func (r *Rules) Oldest() (version int64) {
	if r == nil {
		return 0
	}
	for i := range r.Indexes {
		version = max(version, r.Indexes[i].Version)
	}
	return version
}

// Ended reports whether the rules have the index, under its number, and its deletion has begun.
func (r *Rules) Ended(x *Index) bool {
	found := r.Index(x.Name)
	return found != nil && found.Number == x.Number && !found.InForce()
}

// Indexed reports whether an index has the counter, also one that is being deleted.
func (r *Rules) Indexed(counter string) bool {
	if r == nil {
		return false
	}
	var values [MaxVariables]string
	return slices.ContainsFunc(r.Indexes, func(x Index) bool { return x.has(counter, &values) })
}

// IndexOf returns the index that has the group, or nil.
func (r *Rules) IndexOf(group string) *Index {
	if r == nil || !countmill.IsGroup(group) {
		return nil
	}
	for i := range r.Indexes {
		if r.Indexes[i].HasGroup(group) {
			return &r.Indexes[i]
		}
	}
	return nil
}

// Index returns the index of that name, or nil.
func (r *Rules) Index(name string) *Index {
	if r == nil {
		return nil
	}
	for i := range r.Indexes {
		if r.Indexes[i].Name == name {
			return &r.Indexes[i]
		}
	}
	return nil
}

// A Piece is the part of an index's work that one worker does at a time. Every shard has a place, a
// hash by which the store keeps it: wire.Order of the counter, or the upper half of wire.ShardHash. A piece
// has the shards of a range of places. The pieces of an index together have every place exactly once, but for retired
// ones, which have none.
type Piece struct {
	// Index is Index.Number, and ID the piece's number within the index, from 1.
	Index int64
	ID    int
	// From and To are the first and the last place.
	From, To uint64
	// Retired is true for a piece that was split. It has no shards, and its rests are taken
	// back. Nobody makes another piece with its ID.
	Retired bool
	// Worker is who works at the piece, and Until when others may take it over.
	Worker string
	Until  time.Time
	// Round is the number of times that the piece was taken. A worker that lost the piece has an
	// older one.
	Round int64
	// Read is the store's time before the piece was read, as it is written now; zero if it never was.
	Read time.Time
	// Shards, Rests and Corrected count, for people: the shards that the last reading looked at, the
	// groups with a rest, and the groups whose rest another reading than the first has changed.
	Shards, Rests, Corrected int64
}

// Same reports whether the pieces have the same content. Stores keep microseconds of their times.
func (p *Piece) Same(q *Piece) bool {
	a, b := *p, *q
	a.Until, a.Read, b.Until, b.Read = time.Time{}, time.Time{}, time.Time{}, time.Time{}
	return a == b && sameMicrosecond(p.Until, q.Until) && sameMicrosecond(p.Read, q.Read)
}

func sameMicrosecond(a, b time.Time) bool {
	return a.Truncate(time.Microsecond).Equal(b.Truncate(time.Microsecond))
}

// MaxPieces bounds the pieces of an index.
const MaxPieces = 4096

// A GroupRest is what a piece adds to the total of a group: the sum of (count - grouped) over the
// piece's shards whose counters are in the group.
type GroupRest struct {
	Group string
	// Rest is math.MaxInt64 if the sum does not fit int64. The group then has no total, whatever the
	// rests of other pieces are: Value.Overflow of its record is true.
	Rest int64
}

// An Ungrouped is the part of a shard's count that was folded without an index.
type Ungrouped struct {
	Counter string
	Rest    int64 // not 0, unless Overflow
	// Overflow means that the count or the rest does not fit int64.
	Overflow bool
}

// An UngroupedPage is some shards of a piece.
type UngroupedPage struct {
	// At is a moment of the store at which the shards were read, or an earlier one.
	At time.Time
	// Rests are those of shards whose rest is not 0.
	Rests []Ungrouped
	// Shards is the number of shards that were read, and Place that of the last of them.
	Shards int
	Place  uint64
	// Next is where the next page begins, in the store's own format; empty at the end.
	Next string
}

// Indexing has the work of building, checking and deleting indexes. Concurrent calls are allowed. After an
// error that matches ErrChanged nothing was changed; after any other error the call was maybe
// applied, and may be repeated.
type Indexing interface {
	// Pieces returns the pieces of an index, in any order.
	Pieces(ctx context.Context, index int64) ([]Piece, error)

	// SwapPieces replaces old by next, all of one index, in one transaction, or answers ErrChanged if
	// one of old is not stored exactly so, or a piece of next that is not in old exists. An empty next removes.
	// It takes at most 100 pieces.
	SwapPieces(ctx context.Context, old, next []Piece) error

	// Ungrouped returns one page of at most limit shards of the piece whose counters begin with the
	// prefix of the index, in the order of their places. It leaves out groups, and reads all of a shard at
	// one moment. A page before the last one may have fewer shards. from is empty, or the Next of the page before.
	Ungrouped(ctx context.Context, x *Index, p *Piece, from string, limit int) (UngroupedPage, error)

	// SetRests makes each rest the piece's part of the group's total, in place of the one that it
	// had, each group in one transaction. It makes the group's record. It answers ErrChanged if the piece is
	// not stored exactly so. Rests of 0 leave nothing. A group is in it once.
	SetRests(ctx context.Context, p *Piece, rests []GroupRest) error

	// RestsOf returns up to limit rests of a piece in the order of groups after after.
	RestsOf(ctx context.Context, p *Piece, after string, limit int) ([]GroupRest, error)

	// DropGrouped removes the grouped part from the shards of one page of the piece, as Ungrouped
	// has it, and returns the start of the next page. Nobody folds by the index any more.
	DropGrouped(ctx context.Context, x *Index, p *Piece, from string, limit int) (next string, err error)

	// DropGroups removes up to limit groups of the index, with their records, shards, series
	// and rests, and returns a number that is 0 only if nothing is left. Nobody folds by the index any more.
	// It answers ErrChanged, and removes nothing, if the rules have the index not any more, or not as one that
	// has ended (Rules.Ended), in the same transaction: another index may have groups of the same names
	// by now.
	DropGroups(ctx context.Context, x *Index, limit int) (dropped int, err error)
}
