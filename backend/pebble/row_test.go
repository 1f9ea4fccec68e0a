package pebble

import (
	"bytes"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/go-cmp/cmp"

	"github.com/countmill/countmill/store/engine"
	"github.com/countmill/countmill/store/engine/enginetest"
)

func randomChange(random *rand.Rand) *engine.Change {
	c := &engine.Change{}
	for id := engine.FieldID(1); id < 8; id++ {
		n := int64(random.Uint64N(100)) - 50
		f := engine.Field{ID: id, Value: engine.IntOf(n)}
		what := random.IntN(8)
		if id > 4 { // wide
			f.Value = engine.IntOf(n * (math.MaxInt64 / 50)).Add(engine.IntOf(n * (math.MaxInt64 / 50)))
			what |= 4
		}
		switch what {
		case 0, 7:
			c.Unset = append(c.Unset, id)
		case 1, 6:
			c.Set = append(c.Set, f)
		case 2, 3:
			f.Value = engine.IntOf(max(n, 0))
			if c.Max = append(c.Max, f); n&1 == 0 {
				c.Add = append(c.Add, f)
			}
		case 4, 5:
			c.Add = append(c.Add, f)
		}
	}
	return c
}

// applied are the numbers after a change, without terms.
func applied(row map[engine.FieldID]engine.Int, c *engine.Change) {
	for _, id := range c.Unset {
		delete(row, id)
	}
	for _, f := range c.Set {
		row[f.ID] = f.Value
	}
	for _, f := range c.Max {
		if row[f.ID].Cmp(f.Value) < 0 {
			row[f.ID] = f.Value
		}
	}
	for _, f := range c.Add {
		row[f.ID] = row[f.ID].Add(f.Value)
	}
}

func merged(t *testing.T, values [][]byte, random *rand.Rand, whole bool) []byte {
	t.Helper()
	at := random.IntN(len(values))
	m, err := merger.Merge(nil, values[at])
	for _, newer := range values[at+1:] {
		err = errors.Join(err, m.MergeNewer(newer))
	}
	for i := at - 1; i >= 0; i-- {
		err = errors.Join(err, m.MergeOlder(values[i]))
	}
	value, _, finishErr := m.Finish(whole)
	if err = errors.Join(err, finishErr); err != nil {
		t.Fatal(err)
	}
	return bytes.Clone(value)
}

// Pebble merges neighbouring values in any grouping, and some of them are whole rows already. The row is always the same, and
// has one value.
func TestEveryGroupingIsTheSameRow(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(5, 6))
	for range 3000 {
		want := make(map[engine.FieldID]engine.Int)
		var values [][]byte
		for range 1 + random.IntN(8) {
			c := randomChange(random)
			applied(want, c)
			values = append(values, terms(nil).of(c).append(nil, false))
		}
		first := []byte(nil)
		for range 3 {
			left := values
			for len(left) > 1 {
				from := random.IntN(len(left) - 1)
				n := min(2+random.IntN(3), len(left)-from)
				next := append(bytesOf(left[:from]), merged(t, left[from:from+n], random, from == 0 && random.IntN(2) == 0))
				left = append(next, left[from+n:]...)
			}
			value := merged(t, left, random, true)
			if first == nil {
				first = value
			}
			var row engine.Row
			fill(&row, engine.Sums, value, []engine.FieldID{engine.All}, nil)
			got := make(map[engine.FieldID]engine.Int)
			for _, f := range row.Fields {
				got[f.ID] = f.Value
			}
			for id, n := range want {
				if n == (engine.Int{}) {
					delete(want, id)
				}
			}
			if diff := cmp.Diff(want, got); diff != "" || row.Bad != "" || !bytes.Equal(value, first) {
				t.Fatalf("%q has the value %x and before %x (%s); (-want +got):\n%s", values, value, first, row.Bad, diff)
			}
		}
	}
}

func bytesOf(values [][]byte) [][]byte { return append([][]byte(nil), values...) }

// Keys have the order of their rows, and are decoded.
func TestKeys(t *testing.T) {
	t.Parallel()
	s := newKeyspace("ns", enginetest.Kinds())
	const shard = 2
	var last engine.Key
	var before []byte
	for _, place := range []uint64{0, 3, 1 << 63, 1<<64 - 1} {
		for _, name := range []string{" ", "a", "a ", "aa", strings.Repeat("n", 300), "é"} {
			for _, part := range []uint32{0, 1, 3, 255, 256, 0x300, 0x2100, 0x10003, 0x20020, 1<<24 - 1} {
				k := engine.Key{Kind: shard, Place: place, Name: name, Part: part}
				key := s.row(nil, &k)
				if got, ok := s.decode(shard, key); !ok || got != k {
					t.Fatalf("%+v is decoded as %+v (%t)", k, got, ok)
				}
				if bytes.Compare(before, key) >= 0 || last.Compare(k) >= 0 {
					t.Fatalf("%+v has the key %x, after %+v with %x", k, key, last, before)
				}
				last, before = k, key
			}
		}
	}
	for _, key := range []string{"", "12345678", "12345678\x00", "12345678\x02a", "12345678a"} {
		if got, ok := s.decode(shard, append(s.kind(nil, shard), key...)); ok {
			t.Errorf("%q is decoded as %+v", key, got)
		}
	}
}

// A damaged row is answered as such, and others beside it are not.
func TestDamagedRows(t *testing.T) {
	t.Parallel()
	e := openRows(t, Config{Dir: "/data", FS: vfs.NewMem()}, powerKinds)
	good := engine.Change{Key: engine.Key{Kind: sumRow, Place: 1, Name: "good"}, Add: []engine.Field{{ID: ofCount, Value: engine.IntOf(7)}}}
	bad := engine.Key{Kind: sumRow, Place: 1, Name: "bad"}
	if _, err := e.Commit(t.Context(), &engine.Commit{Changes: engine.Changes(good)}); err != nil {
		t.Fatal(err)
	}
	for _, value := range []string{"\x80", "\x19", "\x1b\x02", "\x1b\x005678901234567", "\x1a\x02", "\xff\xff\xff\xff\xff\xff\x01\x02"} {
		if err := e.db.Set(e.row(nil, &bad), []byte(value), nil); err != nil {
			t.Fatal(err)
		}
		v := e.View()
		scan := v.Scan(t.Context(), engine.Range{Kind: sumRow}, ofCount)
		first, problem := scan.Next(), ""
		if first != nil {
			problem = first.Bad
		}
		if second := scan.Next(); problem == "" || second == nil || second.Bad != "" || second.Int64(ofCount) != 7 {
			t.Errorf("%q: the bad row has %q, and the good one %+v", value, problem, second)
		}
		scan.Close()
		v.Close()
	}
}

// Stored bytes are refused, or a merge of them reads as they do.
func FuzzStored(f *testing.F) {
	for _, c := range []engine.Change{
		{Add: []engine.Field{{ID: 1, Value: engine.IntOf(-7)}, {ID: 1 << 28, Value: engine.Int{Hi: 3}}}},
		{Unset: []engine.FieldID{2}, Max: []engine.Field{{ID: 3, Value: engine.IntOf(9)}}, Add: []engine.Field{{ID: 3, Value: engine.IntOf(1)}}},
	} {
		f.Add(terms(nil).of(&c).append(nil, false))
	}
	all := []engine.FieldID{engine.All}
	f.Fuzz(func(t *testing.T, value []byte) {
		var row, again engine.Row
		fill(&row, engine.Sums, value, all, nil)
		m, err := merger.Merge(nil, value)
		if (err != nil) != (row.Bad != "") {
			t.Fatalf("%x: a read says %q, and a merge %v", value, row.Bad, err)
		}
		if err != nil {
			return
		}
		last := engine.FieldID(0)
		for rest := value; len(rest) > 0; {
			var x term
			if x, rest, _ = nextTerm(rest); x.id <= last {
				return // nobody writes such a row
			}
			last = x.id
		}
		whole, _, err := m.Finish(true)
		if err != nil {
			t.Fatal(err)
		}
		if fill(&again, engine.Sums, whole, all, nil); !slices.Equal(again.Fields, row.Fields) {
			t.Errorf("%x reads %v, and merged %v", value, row.Fields, again.Fields)
		}
	})
}
