package enginetest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/countmill/countmill/store/engine"
)

var commitTests = []suiteTest{
	{"ChangesAddUp", testChangesAddUp},
	{"ZeroIsAbsent", testZeroIsAbsent},
	{"MaxNeverLowers", testMaxNeverLowers},
	{"WantIsAnswered", testWantIsAnswered},
	{"InsertRefusesAll", testInsertRefusesAll},
	{"InsertsOfNeighbours", testInsertsOfNeighbours},
	{"OneInsertWins", testOneInsertWins},
	{"UpdateMakesNothing", testUpdateMakesNothing},
	{"DeleteForgets", testDeleteForgets},
	{"DocumentsAreReplaced", testDocumentsAreReplaced},
	{"SumsAreExact", testSumsAreExact},
	{"RequireHolds", testRequireHolds},
	{"RequireBesideItsChange", testRequireBesideItsChange},
	{"ChangesAreBorrowed", testChangesAreBorrowed},
	{"RowsAreTheirKeys", testRowsAreTheirKeys},
	{"LimitsAreTaken", testLimitsAreTaken},
	{"CancelledAppliesNothing", testCancelledAppliesNothing},
	{"CommitsOfOneRow", testCommitsOfOneRow},
	{"CommitIsWhole", testCommitIsWhole},
}

func testChangesAddUp(s *suite) {
	a, b := placed(7, "a", 1), named(record, "a")
	s.commit(add(a, 5), engine.Change{Key: b, Add: numbers(fields{count: -5, minute: 1, minute + 1<<20: 2})})
	s.commit(engine.Change{Key: a, Unset: []engine.FieldID{due}, Set: one(tally, 9), Max: one(most, 4), Add: numbers(fields{count: 2, other: 1})})
	s.commit(engine.Change{Key: b, Op: engine.Update, Unset: []engine.FieldID{minute}, Set: one(due, 3), Add: one(minute+1, 8)})
	s.want(a, fields{count: 7, other: 1, most: 4, tally: 9})
	s.want(b, fields{count: -5, due: 3, minute + 1: 8, minute + 1<<20: 2})
	s.commit(engine.Change{Key: b, Unset: []engine.FieldID{due, minute + 1}})
	s.want(b, fields{count: -5, minute + 1<<20: 2})
	// A field that was unset begins again.
	s.commit(engine.Change{Key: b, Add: one(minute+1, 3)})
	s.want(b, fields{count: -5, minute + 1: 3, minute + 1<<20: 2})
}

func testZeroIsAbsent(s *suite) {
	a, b := named(record, "a"), named(record, "b")
	s.commit(add(a, 0), engine.Change{Key: b})
	s.want(a, fields{})
	s.want(b, fields{})
	s.commit(add(a, 3), engine.Change{Key: b, Max: one(most, 0), Set: one(tally, 0)})
	s.commit(add(a, -3))
	s.want(a, fields{})
	s.want(b, fields{})
	s.want(named(record, "c"), nil)
}

func testMaxNeverLowers(s *suite) {
	a, b := named(record, "a"), named(record, "b")
	for _, n := range []int64{3, 7, 2, math.MaxInt64, 5} {
		s.commit(engine.Change{Key: a, Max: one(most, n)})
	}
	s.want(a, fields{most: math.MaxInt64})
	s.commit(engine.Change{Key: a, Unset: []engine.FieldID{most}})
	s.commit(engine.Change{Key: a, Max: one(most, 2)})
	s.want(a, fields{most: 2})
	if s.limits.MaxThenAdd { // interleaving 15: Max first
		for _, step := range []struct{ most, want int64 }{{5, 6}, {2, 7}, {100, 101}} {
			s.commit(engine.Change{Key: b, Max: one(tally, step.most), Add: one(tally, 1)})
			s.want(b, fields{tally: step.want})
		}
	}
}

func testWantIsAnswered(s *suite) {
	a, b := placed(1, "a", 0), placed(2, "b", 0)
	var got []int64
	for i := range int64(3) {
		changes := []engine.Change{
			{Key: a, Max: one(most, 10-i), Add: numbers(fields{tally: 1, count: 4}), Want: []engine.FieldID{tally, most}},
			add(placed(1, "b", 0), 1),
			{Key: b, Add: one(tally, 5), Want: []engine.FieldID{tally}},
		}
		got = append(got, s.commit(changes...).Got...)
	}
	want := []int64{1, 10, 5, 2, 10, 10, 3, 10, 15}
	if !s.limits.Returns {
		want = nil
	}
	if !slices.Equal(got, want) {
		s.Errorf("the numbers are %v, want %v", got, want)
	}
}

// C1, C2: nothing of a commit is applied if one Insert finds its row.
func testInsertRefusesAll(s *suite) {
	a := named(record, "a")
	s.commit(insert("x", 1), add(a, 1))
	s.refused(engine.ErrExists, insert("w", 1), insert("x", 1), add(a, 1), add(placed(1, "a", 0), 1))
	s.refused(engine.ErrExists, insert("x", 1))
	s.want(a, fields{count: 1})
	s.want(named(once, "w"), nil)
	s.want(placed(1, "a", 0), nil)
	d := engine.Change{Key: named(doc, "d"), Op: engine.Insert, Data: []byte("first")}
	s.commit(d)
	d.Data = []byte("second")
	s.refused(engine.ErrExists, d, add(a, 1))
	s.wantData(d.Key, "first")
	s.commit(del(d.Key))
	s.commit(d)
	s.wantData(d.Key, "second")
	s.want(a, fields{count: 1})
}

// The same with the many Inserts of one request, whose names differ in their last bytes. The row that is there has another Due.
func testInsertsOfNeighbours(s *suite) {
	const late = int64(30 * 24 * time.Hour / time.Microsecond)
	a := named(record, "a")
	name := func(request, n int) string { return fmt.Sprintf("request %02d %04d", request, n) }
	all := func(request int) (changes []engine.Change) {
		for n := range 20 {
			changes = append(changes, insert(name(request, n), 1))
		}
		return append(changes, add(a, 1))
	}
	s.commit(insert("early", 1))
	for _, present := range []int{0, 1, 9, 19} {
		s.commit(insert(name(present, present), late))
		s.refused(engine.ErrExists, all(present)...)
	}
	s.commit(insert(name(49, 9999), late), insert(name(50, 20), late))
	s.commit(all(50)...)
	s.refused(engine.ErrExists, all(50)...)
	s.want(a, fields{count: 1})
}

// Interleaving 3: of commits with one Insert in common, one is applied, and whole.
func testOneInsertWins(s *suite) {
	const racers = 4
	for round := range max(s.Rounds/4, 3) {
		id := fmt.Sprintf("id %d", round)
		won := s.race(racers, func(i int) []engine.Change {
			return []engine.Change{insert(id, int64(i)), insert(fmt.Sprintf("%s of %d", id, i), 1), add(named(record, id), 1)}
		})
		s.want(named(record, id), fields{count: 1})
		found := 0
		for i := range racers {
			if s.get(named(once, fmt.Sprintf("%s of %d", id, i))).Exists {
				found++
			}
		}
		if won > 1 || found != 1 {
			s.Fatalf("%d commits were acknowledged, and %d have rows; want one", won, found)
		}
	}
}

// race commits the changes of each racer at once, and returns how many were acknowledged.
func (s *suite) race(racers int, changes func(i int) []engine.Change) (won int32) {
	var group sync.WaitGroup
	var acknowledged atomic.Int32
	begin := make(chan struct{})
	for i := range racers {
		group.Go(func() {
			<-begin
			if _, err := s.try(changes(i)...); err == nil {
				acknowledged.Add(1)
			}
		})
	}
	close(begin)
	group.Wait()
	return acknowledged.Load()
}

// Interleaving 5.
func testUpdateMakesNothing(s *suite) {
	a, b := named(record, "a"), named(record, "b")
	update := func(key engine.Key) engine.Change {
		return engine.Change{Key: key, Op: engine.Update, Unset: []engine.FieldID{other}, Add: one(count, 1)}
	}
	s.refused(engine.ErrMissing, update(a), add(b, 1))
	s.want(a, nil)
	s.want(b, nil)
	s.refused(engine.ErrMissing, add(placed(1, "a", 0), 1), update(a))
	s.want(placed(1, "a", 0), nil)
	s.commit(add(a, 1))
	s.commit(update(a))
	s.want(a, fields{count: 2})
	s.transact(func(tx engine.Tx) {
		s.read(tx, a)
		change := del(a)
		tx.Change(&change)
	})
	s.refused(engine.ErrMissing, update(a))
	s.refused(engine.ErrMissing, engine.Change{Key: named(doc, "a"), Op: engine.Update, Data: []byte("x")})
	s.want(a, nil)
	s.want(named(doc, "a"), nil)
}

// Interleaving 12: old fields do not come back.
func testDeleteForgets(s *suite) {
	a, d := placed(3, "a", 2), named(doc, "d")
	s.commit(del(a), del(d))
	for round := range 16 { // its bits say between which changes the engine rests
		s.commit(engine.Change{Key: a, Set: one(due, 5), Add: numbers(fields{count: 5, minute + 3: 1})}, put(d, "old"))
		s.rest(round&1 > 0)
		s.commit(engine.Change{Key: a, Add: one(count, 2)})
		s.rest(round&2 > 0)
		s.commit(del(a), del(d))
		s.rest(round&4 > 0)
		s.want(a, nil)
		s.want(d, nil)
		s.commit(engine.Change{Key: a, Add: one(other, 1)}, engine.Change{Key: d, Set: one(due, 1)})
		s.rest(round&8 > 0)
		s.want(a, fields{other: 1})
		if row := s.get(d); len(row.Data) > 0 || row.Int64(due) != 1 {
			s.Errorf("a deleted document has %q again", row.Data)
		}
		s.commit(del(a))
	}
	s.wantScan(engine.Range{Kind: shard})
}

func testDocumentsAreReplaced(s *suite) {
	d := named(doc, "d")
	long := strings.Repeat("long", 5000)
	for _, data := range []string{long, "short", "", "longer", string([]byte{0, 255, 0})} {
		s.commit(put(d, data))
		s.wantData(d, data)
	}
	s.commit(engine.Change{Key: d, Set: one(due, 7)})
	s.wantData(d, string([]byte{0, 255, 0}))
	s.want(d, fields{due: 7})
	s.commit(put(d, "its fields stay"))
	s.commit(engine.Change{Key: d, Op: engine.Update, Data: []byte("also now")})
	s.wantData(d, "also now")
	s.want(d, fields{due: 7})
	s.commit(engine.Change{Key: d, Unset: []engine.FieldID{due}, Data: []byte("x")})
	s.want(d, fields{})
}

// C3, interleaving 16: four times 2^62 less three times is 2^62, and not an end of int64. The terms come in several orders and
// groups, and the engine rests at several places.
func testSumsAreExact(s *suite) {
	random := rand.New(rand.NewPCG(1, 2))
	terms := []int64{1 << 62, 1 << 62, 1 << 62, 1 << 62, -1 << 62, -1 << 62, -1 << 62, math.MaxInt64, math.MinInt64, math.MinInt64,
		math.MinInt64, math.MinInt64, math.MaxInt64, 1, -1 << 31, 1<<31 - 1, 1 << 31, -1, -5, 1 << 32, math.MinInt64}
	for range 20 {
		terms = append(terms, int64(random.Uint64())>>random.IntN(40))
	}
	keys := []engine.Key{placed(1, "a", 0), placed(1, "b", 0), named(record, "c")}
	sum := engine.Int{}
	for i, key := range keys {
		sum = engine.Int{}
		for left := terms; len(left) > 0; {
			n := min(1+random.IntN(1+i), len(left))
			term := engine.Int{} // one, or several that are joined before, as by a move
			for _, t := range left[:n] {
				term = term.Add(engine.IntOf(t))
			}
			s.commit(engine.Change{Key: key, Add: []engine.Field{{ID: count, Value: term}, {ID: minute, Value: term.Neg()}}})
			left, sum = left[n:], sum.Add(term)
			s.rest(random.IntN(10) == 0)
			s.wantSum(key, count, sum)
			s.wantSum(key, minute, sum.Neg())
		}
		random.Shuffle(len(terms), func(i, j int) { terms[i], terms[j] = terms[j], terms[i] })
	}
	for _, term := range []int64{1, -1, -1} { // to both ends of a wide field
		s.commit(engine.Change{Key: keys[2], Add: []engine.Field{{ID: other, Value: engine.Int{Hi: term << 30}}}})
		s.rest(true)
	}
	s.wantSum(keys[2], other, engine.Int{Hi: -1 << 30})
	// A transaction sets and moves sums of any size.
	a, b := keys[0], keys[1]
	s.transact(func(tx engine.Tx) {
		n := s.read(tx, a)[0].Int(count)
		tx.Change(&engine.Change{Key: a, Unset: []engine.FieldID{count}, Set: []engine.Field{{ID: other, Value: n}}})
		tx.Change(&engine.Change{Key: b, Add: []engine.Field{{ID: other, Value: n.Neg()}}})
	})
	s.wantSum(a, other, sum)
	s.wantSum(a, count, engine.Int{})
	s.wantSum(b, other, sum.Neg())
}

func (s *suite) wantSum(key engine.Key, id engine.FieldID, want engine.Int) {
	s.Helper()
	if row := s.get(key, id); row.Int(id) != want {
		s.Errorf("the field %d of %v is %s, want %s", id, key, row.Int(id), want)
	}
}

// C2, interleaving 8.
func testRequireHolds(s *suite) {
	m, a := named(meta, "settings"), named(record, "a")
	may := func(n int64, changes ...engine.Change) error {
		_, err := s.Engine.Commit(s.ctx(), &engine.Commit{Changes: engine.Changes(changes...), Require: []engine.Require{
			{Key: named(meta, "absent"), Field: most}, {Key: m, Field: most, AtMost: n},
		}})
		return err
	}
	if !s.limits.Conditions {
		if err := may(1, add(a, 1)); !errors.Is(err, engine.ErrRefused) {
			s.Errorf("an engine without conditions takes one: %v", err)
		}
		s.want(a, nil)
		return
	}
	if err := may(-1); !errors.Is(err, engine.ErrOutdated) {
		s.Errorf("a commit requires at most -1 of an absent row: got %v, want ErrOutdated", err)
	}
	for _, step := range []struct {
		set, may int64
		want     error
	}{{0, 0, nil}, {0, -1, engine.ErrOutdated}, {3, 3, nil}, {3, 4, nil}, {4, 3, engine.ErrOutdated}, {9, math.MaxInt64, nil}} {
		s.commit(engine.Change{Key: m, Set: one(most, step.set), Data: []byte("rules")})
		before := s.get(a).Int64(count)
		for _, err := range []error{may(step.may), may(step.may, add(a, 1))} {
			if !errors.Is(err, step.want) {
				s.Errorf("at %d a commit that requires at most %d: got %v, want %v", step.set, step.may, err, step.want)
			}
		}
		if after := s.get(a).Int64(count); (after == before+1) != (step.want == nil) {
			s.Errorf("at %d a commit that requires at most %d added %d", step.set, step.may, after-before)
		}
	}
}

// C2: no commit by old rules takes effect after the rules were changed.
func testRequireBesideItsChange(s *suite) {
	if !s.limits.Conditions {
		s.Skip("the engine has no conditions")
	}
	m, a := named(meta, "settings"), named(record, "a")
	for round := range int64(max(s.Rounds/20, 3)) {
		s.commit(engine.Change{Key: m, Set: one(most, round)})
		var group sync.WaitGroup
		for i := range 4 {
			group.Go(func() {
				for n := range 20 {
					id := fmt.Sprintf("%d %d %d", round, i, n)
					if err := s.counted(id, []engine.Require{{Key: m, Field: most, AtMost: round}}, add(a, 1)); errors.Is(err, engine.ErrOutdated) {
						return
					}
				}
			})
		}
		if _, err := s.try(engine.Change{Key: m, Set: one(most, round+1)}); err != nil {
			s.Error(err)
		}
		then := s.get(a).Int64(count)
		group.Wait()
		if now := s.get(a).Int64(count); now != then {
			s.Fatalf("commits by old rules have added %d after the rules were changed", now-then)
		}
	}
}

// A Change and all that it refers to are the caller's again when yield returns.
func testChangesAreBorrowed(s *suite) {
	const n = 50
	spoiled := engine.IntOf(1 << 40)
	ranges := 0
	changes := func(yield func(*engine.Change) bool) {
		ranges++
		c := engine.Change{Set: one(tally, 0), Add: one(count, 0)}
		for i := range n {
			c.Key = placed(uint64(i), fmt.Sprintf("name %d", i), uint32(i))
			c.Set[0].Value, c.Add[0].Value = engine.IntOf(int64(i+1)), engine.IntOf(int64(i+2))
			if !yield(&c) {
				return
			}
			c.Set[0].Value, c.Add[0].Value = spoiled, spoiled
		}
	}
	data := []byte("kept")
	for _, c := range []iter.Seq[*engine.Change]{changes, engine.Changes(engine.Change{Key: named(doc, "d"), Data: data})} {
		if _, err := s.Engine.Commit(s.ctx(), &engine.Commit{Changes: c}); err != nil {
			s.Fatal(err)
		}
	}
	if ranges > 1 {
		s.Errorf("the engine ranges over the changes %d times, want once", ranges)
	}
	copy(data, "lost")
	for i := range n {
		s.want(placed(uint64(i), fmt.Sprintf("name %d", i), uint32(i)), fields{tally: int64(i + 1), count: int64(i + 2)})
	}
	change := engine.Change{Key: named(doc, "e"), Set: one(due, 1), Data: []byte("kept")}
	s.transact(func(tx engine.Tx) {
		tx.Change(&change)
		change.Set[0].Value = spoiled
		copy(change.Data, "lost")
	})
	s.want(change.Key, fields{due: 1})
	s.wantData(named(doc, "d"), "kept")
	s.wantData(change.Key, "kept")
}

// Each part of a key distinguishes rows, and names have any form.
func testRowsAreTheirKeys(s *suite) {
	keys := []engine.Key{
		placed(0, "a", 0), placed(1, "a", 0), placed(math.MaxUint64, "a", 0), placed(0, "a", 1), placed(0, "a", 1<<24-1), placed(0, "a:1", 0),
		named(record, "a"), named(record, "A"), named(record, " a"), named(record, "__a__"), named(record, "é"), named(record, "e\u0301"), named(record, "a/b"),
		named(record, "."), named(record, "a'b\"c\\"), named(record, "\u2028\U0010ffff"), named(record, strings.Repeat("n", 1000)),
		named(doc, "a"), named(blob, "a"), named(blob, "\xff"), named(blob, "\xff\x00"), named(blob, "\x00"), named(blob, "\xc3"),
	}
	for i, key := range keys {
		c := engine.Change{Key: key, Set: one(due, int64(i)+1)}
		s.commit(c)
	}
	for i, key := range keys {
		s.want(key, fields{due: int64(i) + 1})
	}
	for _, id := range []string{"\x00", "\xff\xff", "sixteen bytes \x01\x80"} {
		s.commit(insert(id, 9))
		s.wantData(named(once, id), id)
	}
}

// A commit has as many rows as Limits says, a change as many fields and bytes, and a look-up as many keys.
func testLimitsAreTaken(s *suite) {
	wide, long := engine.Change{Key: named(record, "wide")}, put(named(doc, "long"), strings.Repeat("x", 1<<20))
	for i := range cmp.Or(s.limits.Fields, 1000) {
		wide.Add = append(wide.Add, engine.Field{ID: minute + engine.FieldID(i), Value: engine.IntOf(1)})
	}
	if most := s.limits.RowBytes; most > 0 {
		long.Data = long.Data[:min(most, len(long.Data))]
	}
	s.commit(wide, long)
	if fields, data := len(s.get(wide.Key).Fields), len(s.get(long.Key).Data); fields != len(wide.Add) || data != len(long.Data) {
		s.Errorf("rows have %d fields and %d bytes, want %d and %d", fields, data, len(wide.Add), len(long.Data))
	}
	rows := 1000
	if s.limits.Rows > 0 {
		rows = s.limits.Rows
	}
	var changes []engine.Change
	var keys []engine.Key
	for i := range rows {
		changes = append(changes, add(placed(uint64(i)<<40, fmt.Sprintf("name %d", i), 0), int64(i)+1))
	}
	for i := range min(s.limits.Keys, 5000) {
		keys = append(keys, placed(uint64(i)<<40, fmt.Sprintf("name %d", i), 0))
	}
	s.commit(changes...)
	found, err := s.view().Get(s.ctx(), keys, count)
	if err != nil || len(found) != len(keys) {
		s.Fatalf("a look-up of %d keys: %d rows and %v", len(keys), len(found), err)
	}
	for i := range found {
		if found[i].Exists != (i < rows) || i < rows && found[i].Int64(count) != int64(i)+1 {
			s.Fatalf("row %d: %+v", i, found[i])
		}
	}
	if s.limits.Rows > 0 {
		extra := named(record, "extra")
		s.refused(engine.ErrRefused, append(changes, add(extra, 1))...)
		s.want(extra, nil)
	}
}

func testCancelledAppliesNothing(s *suite) {
	ctx, cancel := context.WithCancel(s.ctx())
	cancel()
	a := named(record, "a")
	c := add(a, 1)
	_, err := s.Engine.Commit(ctx, &engine.Commit{Changes: engine.Changes(c)})
	_, transactErr := s.Engine.Transact(ctx, false, func(tx engine.Tx) error { tx.Change(&c); return nil })
	_, viewErr := s.view().Get(ctx, []engine.Key{a})
	if !errors.Is(err, engine.ErrNotApplied) || transactErr == nil || viewErr == nil {
		s.Errorf("got %v, %v, %v, want ErrNotApplied and errors", err, transactErr, viewErr)
	}
	for _, err := range []error{err, transactErr, viewErr} {
		if text := fmt.Sprint(err); strings.Count(text, engine.ErrNotApplied.Error()) > 1 {
			s.Errorf("an error says more than once that nothing was applied: %s", text)
		}
	}
	s.want(a, nil)
}

// Interleaving 19: commits that write the same rows end, and none is lost.
func testCommitsOfOneRow(s *suite) {
	rounds := max(s.Rounds/8, 5)
	<-s.addAll(4, rounds, func(int, int) []engine.Change {
		return []engine.Change{add(placed(1, "a", 0), 1), add(placed(1, "b", 0), 2), add(placed(9, "a", 0), 3)}
	})
	n := int64(4 * rounds)
	s.want(placed(1, "a", 0), fields{count: n})
	s.want(placed(1, "b", 0), fields{count: 2 * n})
	s.want(placed(9, "a", 0), fields{count: 3 * n})
}

// C1, interleaving 11: a view has no half of a commit.
func testCommitIsWhole(s *suite) {
	keys := []engine.Key{placed(1, "a", 0), placed(1<<63, "b", 3), named(record, "c")}
	ended := s.addAll(1, s.Rounds, func(_, i int) []engine.Change {
		return []engine.Change{add(keys[0], 1), add(keys[1], 1), add(keys[2], 1), put(named(doc, "d"), fmt.Sprint(i))}
	})
	s.watch(ended, func(v engine.View) {
		n := s.in(v, keys[0]).Int64(count)
		for _, key := range keys[1:] {
			if got := s.in(v, key).Int64(count); got != n {
				s.Errorf("a view has %d of a commit, and %d of its other row", n, got)
			}
		}
		if row := s.in(v, named(doc, "d")); row.Exists && string(row.Data) != fmt.Sprint(n-1) {
			s.Errorf("a view has the commit %d, and the document %s", n-1, row.Data)
		}
	})
	s.want(keys[2], fields{count: int64(s.Rounds)})
}
