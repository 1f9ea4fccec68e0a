package engine

import (
	"fmt"
	"iter"
	"slices"
	"strings"
	"unicode/utf8"
)

// An Op says whether the row of a Change must exist.
type Op uint8

// The ops.
const (
	// Upsert makes the row if it is missing, also if nothing else changes.
	Upsert Op = iota
	// Insert makes the row, or the commit ends with ErrExists. For Once and Docs.
	Insert
	// Update changes an existing row, or the commit ends with ErrMissing. It never makes a row.
	Update
	// Delete removes the row with all its fields, and ignores a missing one. Not for Once.
	Delete
)

// A Change is a change of one row. Fields that it does not name stay as they are. An absent field is 0, and a field
// of 0 is absent: no engine distinguishes them. Each list is by rising ID, and a field is in one list only; Max
// and Add may share one where Limits.MaxThenAdd, and Max comes first.
type Change struct {
	Key Key
	Op  Op
	// Unset makes fields 0.
	Unset []FieldID
	// Set replaces fields. It replaces wide ones only in a Transact: a sum that was not read may have grown.
	Set []Field
	// Max raises narrow fields to numbers that are not negative. For Sums.
	Max []Field
	// Add adds to fields. For Sums.
	Add []Field
	// Data replaces Row.Data if it is not nil.
	Data []byte
	// Want are narrow fields of Max and Add whose numbers after the commit are the answer (Result.Got), where
	// Limits.Returns. Not in a Transact.
	Want []FieldID
}

// A Commit is applied whole or not at all.
type Commit struct {
	// Changes yields the changes by rising Key, no key twice. The lists and the Data of a Change are valid until
	// yield returns. The engine ranges over Changes at most once, perhaps under a lock: it must not call the engine.
	Changes iter.Seq[*Change]
	// Require are conditions of the moment in which the commit takes effect, also without any change. They need
	// Limits.Conditions. The commit itself does not change their rows.
	Require []Require
	// Taken are rows that other programs have added beside the kinds, by their ids (Limits.Takes). The commit removes them. If one is gone, it
	// ends with ErrExists.
	Taken []int64
	// Restores is Checked.Restores of the check after which the caller has read the data that the commit rests on; nil if it rests on none. A database
	// that was restored since refuses the commit with ErrOutdated, also before a Check has noticed it. An engine whose number is always 0
	// ignores it.
	Restores *int64
	// Soft commits need not survive a crash. A later commit, also of a process that outlives the crash, implies them, and views show them.
	Soft bool
}

// A Require holds while a narrow field of a row is at most AtMost. An absent field is 0.
type Require struct {
	Key    Key
	Field  FieldID
	AtMost int64
}

// Changes returns the changes of a Commit.
func Changes(list ...Change) iter.Seq[*Change] {
	return func(yield func(*Change) bool) {
		for i := range list {
			if !yield(&list[i]) {
				return
			}
		}
	}
}

// Clone returns a copy that stays valid.
func (c *Change) Clone() Change {
	n := *c
	n.Unset, n.Set, n.Max, n.Add = slices.Clone(n.Unset), slices.Clone(n.Set), slices.Clone(n.Max), slices.Clone(n.Add)
	n.Data, n.Want = slices.Clone(n.Data), slices.Clone(n.Want)
	return n
}

// Check returns which rule a Change breaks, as an error that matches ErrRefused. inTransact is true for one of a
// Transact. An engine may call it; tests do.
func (k Kinds) Check(c *Change, l *Limits, inTransact bool) error {
	kind := k.Of(c.Key.Kind)
	if kind == nil {
		return fmt.Errorf("%w: no kind %d", ErrRefused, c.Key.Kind)
	}
	problem := kind.checkKey(&c.Key)
	for _, rule := range []struct {
		broken bool
		text   string
	}{
		{len(c.Data) > l.RowBytes && l.RowBytes > 0, "its data are too long"},
		{l.Fields > 0 && len(c.Max)+len(c.Add) > l.Fields, "it adds to too many fields"},
		{c.Op == Delete && len(c.Unset)+len(c.Set)+len(c.Max)+len(c.Add)+len(c.Data)+len(c.Want) > 0, "a Delete changes something else too"},
		{kind.Class == Once && c.Op != Insert, "rows of Once are inserted only"},
		{kind.Class != Sums && len(c.Max)+len(c.Add) > 0, "only Sums have Max and Add"},
		{kind.Class == Sums && (c.Op == Insert || c.Data != nil), "Sums have no Insert and no Data"},
		{inTransact && len(c.Want) > 0, "a Transact returns no numbers"},
	} {
		if rule.broken {
			problem = rule.text
		}
	}
	if problem == "" {
		problem = c.checkFields(kind, l, inTransact)
	}
	if problem != "" {
		return fmt.Errorf("%w: %s %q: %s", ErrRefused, kind.Name, c.Key.Name, problem)
	}
	return nil
}

func (k *Kind) checkKey(key *Key) string {
	switch {
	case key.Place != 0 && !k.Places, key.Part != 0 && !k.Parts, key.Part >= 1<<24:
		return "its kind has no such places or parts"
	case key.Name == "":
		return "its name is empty"
	case !k.Binary && (!utf8.ValidString(key.Name) || strings.ContainsFunc(key.Name, func(r rune) bool { return r < ' ' })):
		return "its name is not text"
	}
	return ""
}

func (c *Change) checkFields(kind *Kind, l *Limits, inTransact bool) string {
	var all []FieldID
	for list, fields := range [][]Field{c.Set, c.Max, c.Add} {
		const set, most = 0, 1
		last := FieldID(0)
		for _, f := range fields {
			spec := kind.Field(f.ID)
			if spec == nil || f.ID <= last {
				return "a field is unknown, or out of order"
			}
			_, fits := f.Value.Int64()
			switch last = f.ID; {
			case !spec.Wide && !fits:
				return "a number is beyond its field"
			case spec.Wide && list == set && !inTransact:
				return "a wide field is set without a read"
			case list == most && (spec.Wide || f.Value.Hi < 0):
				return "Max of a wide field, or of a negative number"
			}
			if list != most || !l.MaxThenAdd || !slices.ContainsFunc(c.Add, func(a Field) bool { return a.ID == f.ID }) {
				all = append(all, f.ID)
			}
		}
	}
	for _, id := range c.Unset {
		if kind.Field(id) == nil {
			return "an unknown field is unset"
		}
	}
	all = append(all, c.Unset...)
	slices.Sort(all)
	if len(slices.Compact(slices.Clone(all))) != len(all) || !slices.IsSorted(c.Unset) {
		return "a field is in two lists, or out of order"
	}
	for _, id := range c.Want {
		same := func(f Field) bool { return f.ID == id }
		if spec := kind.Field(id); spec == nil || spec.Wide || !slices.ContainsFunc(c.Max, same) && !slices.ContainsFunc(c.Add, same) {
			return "Want names a field that is not narrow, or that is neither in Max nor in Add"
		}
	}
	return ""
}
