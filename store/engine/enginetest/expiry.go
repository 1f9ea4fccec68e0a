package enginetest

import (
	"fmt"
	"math"
	"time"

	"github.com/countmill/countmill/store/engine"
)

var expiryTests = []suiteTest{
	{"IdentityIsTheKey", testIdentityIsTheKey},
	{"ExpireKeepsItsHorizon", testExpireKeepsItsHorizon},
	{"DueMissesNothing", testDueMissesNothing},
	{"DueIsAHint", testDueIsAHint},
}

const day = int64(24 * time.Hour / time.Microsecond)

// start is a day of the suite, in microseconds.
var start = time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC).UnixMicro()

// E1, interleaving 20: an id is found whatever its time is, also if it is inserted with several at once.
func testIdentityIsTheKey(s *suite) {
	s.commit(insert("id", start))
	for _, at := range []int64{start, start + 1, start + 5*day, start - 100*day, start + 1000*day, 0, 1} {
		s.refused(engine.ErrExists, insert("id", at), add(named(record, "a"), 1))
	}
	s.want(named(once, "id"), fields{due: start})
	s.want(named(record, "a"), nil)
	for round := range max(s.Rounds/4, 3) {
		id := fmt.Sprintf("id %d", round)
		won := s.race(4, func(i int) []engine.Change {
			return []engine.Change{insert(id, start+int64(i*i)*3*day), add(named(record, id), 1)}
		})
		if n := s.get(named(record, id)).Int64(count); n != 1 || won > 1 {
			s.Fatalf("an id with four times was applied %d times, and acknowledged %d times", n, won)
		}
	}
}

// E2.
func testExpireKeepsItsHorizon(s *suite) {
	for i, at := range []int64{1, start - 1000*day, start - 30*day, start - 1, start, start + 1, start + 30*day, 0} {
		s.commit(insert(fmt.Sprint(i), at), engine.Change{Key: named(blob, fmt.Sprint(i)), Set: one(due, at), Data: []byte("x")})
	}
	s.commit(put(named(blob, "without"), "x"))
	v := s.view()
	s.in(v, named(once, "0"))
	for _, kind := range []engine.KindID{once, blob} {
		for _, horizon := range []int64{math.MinInt64, 0, start - 60*day, start} {
			if err := s.Engine.Expire(s.ctx(), kind, horizon); err != nil {
				s.Fatal(err)
			}
		}
		for i := range 8 {
			exists := s.get(named(kind, fmt.Sprint(i))).Exists
			gone, kept := i < 3, i > 3
			if s.limits.Expires {
				gone, kept = false, true // the database does so itself
			}
			if exists && gone || !exists && kept {
				s.Errorf("row %d of the kind %d: exists is %t", i, kind, exists)
			}
		}
	}
	if !s.get(named(blob, "without")).Exists || !s.in(v, named(once, "0")).Exists {
		s.Error("a row without a time is gone, or a row of an earlier view")
	}
	if !s.limits.Expires {
		s.commit(insert("1", start+day), engine.Change{Key: named(blob, "1"), Op: engine.Insert, Data: []byte("new")})
		s.wantData(named(blob, "1"), "new")
		s.want(named(blob, "1"), fields{})
	}
	s.refused(engine.ErrExists, insert("5", start))
}

// E3: all pages of Due together have every row that is due.
func testDueMissesNothing(s *suite) {
	want := make(map[engine.Key]bool)
	var changes []engine.Change
	for i := range 48 { // many at one time, in all orders of their keys
		key := placed(uint64(i%3), []string{"a", "a !", "a0", "b"}[i/3%4], uint32(i/12))
		at := []int64{1, 1, 1, 3, 4}[i%5]
		changes = append(changes, engine.Change{Key: key, Set: one(due, at), Add: one(count, 1)})
		want[key] = at <= 3
	}
	s.commit(changes...)
	s.commit(add(placed(0, "never", 0), 1), engine.Change{Key: named(record, "other"), Set: one(due, 1)})
	got := make(map[engine.Key]int)
	after := ""
	for page := range 200 {
		limit := 1 + page%3
		keys, next, err := s.Engine.Due(s.ctx(), shard, 3, after, limit)
		if err != nil || len(keys) > limit {
			s.Fatalf("a page of %d has %d keys (%v)", limit, len(keys), err)
		}
		for _, key := range keys {
			got[key]++
		}
		if after = next; next == "" {
			break
		}
	}
	for key, is := range want {
		if got[key] != 1 && is || got[key] != 0 && !is {
			s.Errorf("%v is due: %t; the pages have it %d times", key, is, got[key])
		}
	}
	if got[placed(0, "never", 0)]+got[named(record, "other")] > 0 {
		s.Error("the pages have rows that are never due, or of another kind")
	}
	for range 2 {
		if keys, _, err := s.Engine.Due(s.ctx(), doc, math.MaxInt64, "", 10); err != nil || len(keys) > 0 {
			s.Errorf("a kind without rows is due: %v, %v", keys, err)
		}
	}
}

// Interleaving 14: a row that was listed may have moved; the transaction that reads it knows.
func testDueIsAHint(s *suite) {
	a, b, c := named(record, "a"), named(record, "b"), named(record, "c")
	for _, key := range []engine.Key{a, b, c} {
		s.commit(engine.Change{Key: key, Set: one(due, 5)})
	}
	list := func() (n int) {
		s.Helper()
		keys, _, err := s.Engine.Due(s.ctx(), record, 5, "", 10)
		if err != nil {
			s.Fatal(err)
		}
		return len(keys)
	}
	if n := list(); n != 3 {
		s.Fatalf("%d rows are due, want 3", n)
	}
	s.commit(engine.Change{Key: a, Set: one(due, 9)}, engine.Change{Key: b, Unset: []engine.FieldID{due}}, del(c))
	swept := 0
	s.transact(func(tx engine.Tx) {
		for _, row := range s.read(tx, a, b, c) {
			if at := row.Int64(due); row.Exists && at > 0 && at <= 5 {
				swept++
			}
		}
	})
	if swept > 0 {
		s.Errorf("%d rows are due that have moved", swept)
	}
	s.commit(engine.Change{Key: a, Set: one(due, 4)}, engine.Change{Key: c, Max: one(due, 2)})
	s.transact(func(tx engine.Tx) { tx.Change(&engine.Change{Key: b, Set: one(due, 1)}) })
	s.rest(true)
	if n := list(); n != 3 {
		s.Errorf("%d rows are due after their times were set again, want 3", n)
	}
}
