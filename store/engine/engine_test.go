package engine_test

import (
	"errors"
	"testing"

	"github.com/countmill/countmill/store/engine"
	"github.com/countmill/countmill/store/engine/enginetest"
)

// Check refuses each mistake in a change that is right without it.
func TestCheck(t *testing.T) {
	t.Parallel()
	const once, shard, record, doc = 1, 2, 3, 4
	kinds, limits := enginetest.Kinds(), engine.Limits{RowBytes: 10, Fields: 2}
	one := func(id engine.FieldID, n int64) []engine.Field {
		return []engine.Field{{ID: id, Value: engine.IntOf(n)}}
	}
	sum := func(change func(c *engine.Change)) engine.Change {
		c := engine.Change{Key: engine.Key{Kind: shard, Place: 1, Name: "a", Part: 2}, Max: one(1, 1), Add: one(4, 1), Want: []engine.FieldID{1}}
		change(&c)
		return c
	}
	letter := func(change func(c *engine.Change)) engine.Change {
		c := engine.Change{Key: engine.Key{Kind: doc, Name: "a"}, Op: engine.Insert, Set: one(2, 1), Data: []byte("data")}
		change(&c)
		return c
	}
	for name, tt := range map[string]struct {
		c         engine.Change
		transact  bool
		wantRight bool
	}{
		"a sum":                      {c: sum(func(*engine.Change) {}), wantRight: true},
		"a document":                 {c: letter(func(*engine.Change) {}), wantRight: true, transact: true},
		"a wide field that was read": {c: sum(func(c *engine.Change) { c.Set, c.Add, c.Want = c.Add, nil, nil }), wantRight: true, transact: true},
		"an open field":              {c: sum(func(c *engine.Change) { c.Unset = []engine.FieldID{16, 1 << 30} }), wantRight: true},
		"many fields unset":          {c: sum(func(c *engine.Change) { c.Unset = []engine.FieldID{16, 17, 18} }), wantRight: true},
		"a deletion":                 {c: engine.Change{Key: engine.Key{Kind: record, Name: "a"}, Op: engine.Delete}, wantRight: true},
		"no kind":                    {c: sum(func(c *engine.Change) { c.Key.Kind = 99 })},
		"a place":                    {c: letter(func(c *engine.Change) { c.Key.Place = 1 })},
		"a part":                     {c: letter(func(c *engine.Change) { c.Key.Part = 1 })},
		"a large part":               {c: sum(func(c *engine.Change) { c.Key.Part = 1 << 24 })},
		"no name":                    {c: sum(func(c *engine.Change) { c.Key.Name = "" })},
		"a name of bytes":            {c: sum(func(c *engine.Change) { c.Key.Name = "\xff" })},
		"a control character":        {c: sum(func(c *engine.Change) { c.Key.Name = "a\x1f" })},
		"long data":                  {c: letter(func(c *engine.Change) { c.Data = make([]byte, 11) })},
		"many fields":                {c: sum(func(c *engine.Change) { c.Add = append(c.Add, one(16, 1)...) })},
		"a deletion of more":         {c: letter(func(c *engine.Change) { c.Op = engine.Delete })},
		"an upsert of once":          {c: engine.Change{Key: engine.Key{Kind: once, Name: "a"}}},
		"an addition to a document":  {c: letter(func(c *engine.Change) { c.Add = one(2, 1) })},
		"data of sums":               {c: sum(func(c *engine.Change) { c.Data = []byte("x") })},
		"an insert of sums":          {c: sum(func(c *engine.Change) { c.Op = engine.Insert })},
		"an unknown field":           {c: sum(func(c *engine.Change) { c.Add = one(7, 1) })},
		"an unknown field unset":     {c: sum(func(c *engine.Change) { c.Unset = []engine.FieldID{7} })},
		"fields out of order":        {c: sum(func(c *engine.Change) { c.Add = append(one(5, 1), one(4, 1)...) })},
		"a wide set":                 {c: sum(func(c *engine.Change) { c.Set = one(5, 1) })},
		"a wide maximum":             {c: sum(func(c *engine.Change) { c.Max, c.Add, c.Want = one(4, 1), nil, nil })},
		"a negative maximum":         {c: sum(func(c *engine.Change) { c.Max = one(1, -1) })},
		"a large number":             {c: sum(func(c *engine.Change) { c.Set = []engine.Field{{ID: 2, Value: engine.Int{Hi: 1}}} })},
		"a field twice":              {c: sum(func(c *engine.Change) { c.Unset = []engine.FieldID{1} })},
		"both for one field":         {c: sum(func(c *engine.Change) { c.Add = one(1, 1) })},
		"unset out of order":         {c: sum(func(c *engine.Change) { c.Unset = []engine.FieldID{17, 16} })},
		"Want of a wide field":       {c: sum(func(c *engine.Change) { c.Want = []engine.FieldID{4} })},
		"Want of another field":      {c: sum(func(c *engine.Change) { c.Want = []engine.FieldID{3} })},
		"Want in a transaction":      {c: sum(func(*engine.Change) {}), transact: true},
	} {
		err := kinds.Check(&tt.c, &limits, tt.transact)
		if (err == nil) != tt.wantRight || err != nil && !errors.Is(err, engine.ErrRefused) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	limits.MaxThenAdd = true
	both := sum(func(c *engine.Change) { c.Add = one(1, 1) })
	if err := kinds.Check(&both, &limits, false); err != nil {
		t.Errorf("both for one field, where the engine takes it: %v", err)
	}
}
