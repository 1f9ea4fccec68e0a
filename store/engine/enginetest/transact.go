package enginetest

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/countmill/countmill/store/engine"
)

var transactTests = []suiteTest{
	{"ReadRowIsTheSame", testReadRowIsTheSame},
	{"AbsentRowStaysAbsent", testAbsentRowStaysAbsent},
	{"UnsetBesideAnAddition", testUnsetBesideAnAddition},
	{"DeleteBesideAnAddition", testDeleteBesideAnAddition},
	{"BlindAdditionsMeet", testBlindAdditionsMeet},
	{"ConflictNeedsAChange", testConflictNeedsAChange},
	{"ErrorAppliesNothing", testErrorAppliesNothing},
	{"TransactChangesAll", testTransactChangesAll},
	{"TransactInserts", testTransactInserts},
	{"TransactReadsOneMoment", testTransactReadsOneMoment},
	{"TransactOpensViews", testTransactOpensViews},
	{"HistoryHasAnOrder", testHistoryHasAnOrder},
}

// beside runs a transaction that reads some rows and then writes another one. Between the two, another process commits changes of
// rows that it has read, one after the other. It must not be as if nothing had happened.
func (s *suite) beside(reads []engine.Key, meanwhile ...engine.Change) {
	s.Helper()
	result := named(record, "result of the transaction")
	var done chan struct{}
	came, runs := false, 0
	_, err := s.Engine.Transact(s.ctx(), false, func(tx engine.Tx) error {
		if runs++; runs > 1 {
			s.Fatal("the function runs again") // T4
		}
		s.read(tx, reads[0])
		s.read(tx, reads...) // a second call, and a row that was read before
		done, came = s.meanwhile(slices.Collect(slices.Chunk(meanwhile, 1))...)
		tx.Change(&engine.Change{Key: result, Set: one(tally, 1)})
		return nil
	})
	if done == nil {
		s.Fatalf("the transaction has not read: %v", err)
	}
	<-done
	if err == nil && !came { // the commit waited, and came later
		s.commit(del(result))
	} else if !errors.Is(err, engine.ErrConflict) || s.get(result).Exists {
		s.Fatalf("a row that the transaction has read has changed: got %v, want ErrConflict and nothing applied", err)
	}
}

// T1, interleaving 1: the transaction writes another row only.
func testReadRowIsTheSame(s *suite) {
	a, b, d := placed(1, "a", 0), named(record, "b"), named(doc, "d")
	s.commit(add(a, 1), add(b, 1), put(d, "old"))
	s.beside([]engine.Key{a}, add(a, 1))
	s.beside([]engine.Key{named(record, "none"), b, a}, add(a, 1), add(named(record, "c"), 1))
	s.beside([]engine.Key{b}, del(b))
	s.beside([]engine.Key{d}, del(d), put(d, "another"))
	s.beside([]engine.Key{d}, put(d, "new"))
	s.beside([]engine.Key{d}, engine.Change{Key: d, Set: one(due, 4)})
	s.want(a, fields{count: 3})
	s.want(b, nil)
}

// T1, interleaving 2.
func testAbsentRowStaysAbsent(s *suite) {
	a := placed(1, "a", 0)
	for _, c := range []engine.Change{add(a, 1), insert("x", 1), put(named(doc, "x"), ""), {Key: named(record, "x")}} {
		s.beside([]engine.Key{named(record, "b"), c.Key}, c)
	}
	s.want(a, fields{count: 1})
}

// Interleaving 4: the transaction unsets 5 that it has read, and 3 come meanwhile. The field has 3 at the end, and neither 8
// nor nothing, also when the terms were kept apart on a disk.
func testUnsetBesideAnAddition(s *suite) {
	a, b := placed(1, "a", 0), named(record, "sum")
	plus := func(n int64) engine.Change { return engine.Change{Key: a, Add: one(minute, n)} }
	s.commit(plus(2))
	s.rest(true)
	s.commit(plus(3))
	moved := int64(0)
	for attempt := 0; ; attempt++ {
		var done chan struct{}
		_, err := s.Engine.Transact(s.ctx(), false, func(tx engine.Tx) error {
			moved = s.read(tx, a)[0].Int64(minute)
			if attempt == 0 {
				done, _ = s.meanwhile([]engine.Change{plus(3)})
			}
			tx.Change(&engine.Change{Key: a, Unset: []engine.FieldID{minute}})
			tx.Change(&engine.Change{Key: b, Add: one(minute, moved)})
			return nil
		})
		if done != nil {
			<-done
		}
		if err == nil {
			break
		}
		if !errors.Is(err, engine.ErrConflict) || attempt == 20 {
			s.Fatal(err)
		}
	}
	for range 2 {
		in, out := s.get(a).Int64(minute), s.get(b).Int64(minute)
		if out != moved || in+out != 8 {
			s.Errorf("moved %d: %d are left, and %d at the other place; want 8 together", moved, in, out)
		}
		s.commit(plus(4))
		s.commit(plus(-4))
		s.rest(true)
	}
}

// T1: the transaction deletes a row that it has read, and 3 come meanwhile. They are there at the end.
func testDeleteBesideAnAddition(s *suite) {
	a := named(record, "a")
	s.commit(add(a, 5))
	var done chan struct{}
	_, err := s.Engine.Transact(s.ctx(), false, func(tx engine.Tx) error {
		s.read(tx, a)
		done, _ = s.meanwhile([]engine.Change{add(a, 3)})
		change := del(a)
		tx.Change(&change)
		return nil
	})
	if done == nil || err != nil && !errors.Is(err, engine.ErrConflict) {
		s.Fatal(err)
	}
	<-done
	want := fields{count: 3}
	if err != nil {
		want[count] = 8
	}
	s.want(a, want)
}

// A blind addition of a transaction meets those of commits.
func testBlindAdditionsMeet(s *suite) {
	a, b := placed(1, "a", 0), named(record, "b")
	s.transact(func(tx engine.Tx) {
		s.read(tx, b)
		done := inBackground(func() { s.commit(engine.Change{Key: a, Max: one(most, 4), Add: one(count, 2)}) })
		<-done
		tx.Change(&engine.Change{Key: a, Max: one(most, 3), Add: one(count, 1)})
		tx.Change(&engine.Change{Key: b, Set: one(tally, 1)})
	})
	s.want(a, fields{count: 3, most: 4})
	s.want(b, fields{tally: 1})
}

// T1: no conflict with rows that were not read, and none with a row that has not changed.
func testConflictNeedsAChange(s *suite) {
	a, b, gone := placed(1, "a", 0), placed(1, "b", 0), named(record, "gone")
	s.commit(add(a, 1), add(b, 1), add(gone, 1))
	for range 5 {
		s.commit(del(gone))
		s.transact(func(tx engine.Tx) {
			s.read(tx, a, gone, placed(1, "absent", 0))
			done := inBackground(func() {
				s.commit(add(b, 1))
				s.commit(add(placed(1, "c", 0), 1), add(named(record, "a"), 1))
			})
			<-done
			tx.Change(&engine.Change{Key: a, Add: one(count, 1)})
		})
	}
	s.want(a, fields{count: 6})
	s.want(b, fields{count: 6})
}

// Interleaving 18.
func testErrorAppliesNothing(s *suite) {
	a := named(record, "a")
	mine := errors.New("mine")
	var kept engine.Tx
	_, err := s.Engine.Transact(s.ctx(), false, func(tx engine.Tx) error {
		kept = tx
		s.read(tx, a)
		tx.Change(&engine.Change{Key: a, Set: one(tally, 1)})
		return mine
	})
	if !errors.Is(err, mine) {
		s.Fatalf("got %v, want the function's error", err)
	}
	if _, err := kept.Get(s.ctx(), []engine.Key{a}); err == nil {
		s.Error("a transaction reads after its end")
	}
	kept.Change(&engine.Change{Key: a, Set: one(tally, 2)})
	s.want(a, nil)
	if _, err := s.Engine.Transact(s.ctx(), false, func(tx engine.Tx) error { s.read(tx, a); return nil }); err != nil {
		s.Errorf("a transaction without changes: %v", err)
	}
	s.want(a, nil)
}

func testTransactChangesAll(s *suite) {
	a, b, d := placed(1, "a", 0), named(record, "b"), named(doc, "d")
	s.commit(engine.Change{Key: a, Add: numbers(fields{count: 5, minute: 2})}, add(b, 1), put(d, "old"))
	before := s.get(a).Updated
	_, err := s.Engine.Transact(s.ctx(), true, func(tx engine.Tx) error {
		if !tx.Now().IsZero() {
			s.Error("a transaction has a time before it has read")
		}
		rows := s.read(tx, d, a, b, named(doc, "none"))
		if string(rows[0].Data) != "old" || rows[1].Int64(count) != 5 || rows[1].Int64(minute) != 2 || rows[2].Int64(count) != 1 || rows[3].Exists {
			s.Errorf("read %+v", rows)
		}
		if tx.Now().IsZero() || s.limits.Clock && tx.Now().Before(before) {
			s.Errorf("the transaction is of %s, before a commit that it shows (%s)", tx.Now(), before)
		}
		// In any order.
		for _, c := range []engine.Change{
			put(d, "new"), del(b), insert("x", 1),
			{Key: a, Op: engine.Update, Unset: []engine.FieldID{minute}, Set: numbers(fields{due: 1, other: 7}), Add: one(count, 1)},
		} {
			tx.Change(&c)
		}
		if row := s.read(tx, b)[0]; !row.Exists {
			s.Error("a transaction shows its own changes")
		}
		return nil
	})
	if err != nil {
		s.Fatal(err)
	}
	s.want(a, fields{count: 6, due: 1, other: 7})
	s.want(b, nil)
	s.wantData(d, "new")
	s.wantData(named(once, "x"), "x")
}

func testTransactInserts(s *suite) {
	a := named(record, "a")
	s.commit(insert("x", 1))
	for _, c := range []engine.Change{insert("x", 2), {Key: named(doc, "none"), Op: engine.Update, Data: []byte("x")}} {
		_, err := s.Engine.Transact(s.ctx(), false, func(tx engine.Tx) error {
			tx.Change(&engine.Change{Key: a, Set: one(tally, 1)})
			tx.Change(&c)
			return nil
		})
		if want := map[engine.Op]error{engine.Insert: engine.ErrExists, engine.Update: engine.ErrMissing}[c.Op]; !errors.Is(err, want) {
			s.Errorf("got %v, want %v", err, want)
		}
	}
	s.want(a, nil)
}

// T5: a function that decides by two rows never has them from two moments.
func testTransactReadsOneMoment(s *suite) {
	a, b := placed(1, "a", 0), placed(2, "b", 0)
	s.commit(add(a, 1), add(b, 1))
	torn := errors.New("two moments")
	var done chan struct{}
	_, err := s.Engine.Transact(s.ctx(), false, func(tx engine.Tx) error {
		first := s.read(tx, a)[0].Int64(count)
		done, _ = s.meanwhile([]engine.Change{add(a, 1), add(b, 1)})
		rows, err := tx.Get(s.ctx(), []engine.Key{b}, count)
		if err == nil && rows[0].Int64(count) != first {
			err = torn
		}
		return err
	})
	if done == nil {
		s.Fatalf("the transaction has not read: %v", err)
	}
	if <-done; errors.Is(err, torn) {
		s.Error("a transaction shows one row of a commit, and not the other")
	}
}

// T2, T4: a view that the function opens has everything that came before the read.
func testTransactOpensViews(s *suite) {
	counter := named(record, "counter")
	s.commit(add(counter, 1), add(placed(1, "counter", 0), 1))
	s.transact(func(tx engine.Tx) {
		s.read(tx, counter)
		if keys := s.scan(s.view(), engine.Range{Kind: shard}); len(keys) != 1 {
			s.Errorf("the view has %v, want one row", keys)
		}
		change := del(counter)
		tx.Change(&change)
	})
	s.want(counter, nil)
}

// T1 in a random history. Commits add 1 to one of four rows, blindly. Transactions read all four rows, write the sum
// into a document of their own, and add 1 too. In the order in which the database applied them, each transaction has
// read the number of changes before it. So no two have read the same sum, none has read less than was acknowledged
// before it began, and each sum was read by a transaction that knows of its success.
func testHistoryHasAnOrder(s *suite) {
	keys := []engine.Key{placed(1, "a", 0), placed(2, "b", 0), named(record, "c"), named(record, "d")}
	total := func(rows []engine.Row) (sum int64) {
		for i := range rows {
			sum += rows[i].Int64(count)
		}
		return sum
	}
	var acknowledged, open atomic.Int64
	var readers sync.Map // the name of the document by the sum
	transact := func(name string, key engine.Key) {
		before, read := acknowledged.Load(), int64(0)
		_, err := s.Engine.Transact(s.ctx(), false, func(tx engine.Tx) error {
			read = total(s.read(tx, keys...))
			tx.Change(&engine.Change{Key: named(doc, name), Data: fmt.Append(nil, read)})
			tx.Change(&engine.Change{Key: key, Add: one(count, 1)})
			return nil
		})
		if err == nil {
			acknowledged.Add(1)
			if other, twice := readers.LoadOrStore(read, name); twice || read < before {
				s.Errorf("%s has read the sum %d, as %v has; %d were acknowledged before", name, read, other, before)
			}
		} else if !errors.Is(err, engine.ErrConflict) {
			open.Add(1)
		}
	}
	rounds := max(s.Rounds/4, 10)
	ended := s.addAll(2, rounds, func(c, i int) []engine.Change { return []engine.Change{add(keys[(c+i)%4], 1)} })
	var group sync.WaitGroup
	for w := range 2 {
		group.Go(func() {
			for i := range rounds {
				transact(fmt.Sprintf("%d %d", w, i), keys[(w+i)%4])
			}
		})
	}
	group.Wait()
	<-ended
	rows, err := s.view().Get(s.ctx(), keys, count)
	if err != nil {
		s.Fatal(err)
	}
	if sum, most := total(rows), acknowledged.Load()+int64(2*rounds); sum < most || sum > most+open.Load() {
		s.Errorf("the sum is %d, want %d, and perhaps some of %d", sum, most, open.Load())
	}
	for _, key := range s.scan(s.view(), engine.Range{Kind: doc}) {
		row, read := s.get(key), int64(0)
		_, err := fmt.Sscan(string(row.Data), &read)
		if name, _ := readers.Load(read); err != nil || name != key.Name && open.Load() == 0 {
			s.Errorf("%s has read %q, and %v was acknowledged with it (%v)", key.Name, row.Data, name, err)
		}
	}
}
