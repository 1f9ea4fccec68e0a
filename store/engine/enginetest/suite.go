// Package enginetest is the suite that every engine passes. A new engine needs one page of test:
//
//	func TestEngine(t *testing.T) {
//		enginetest.Run(t, func(t *testing.T, kinds engine.Kinds) *enginetest.Under { return &enginetest.Under{Engine: open(t, kinds)} })
//	}
//
// The name of a test says the promise, and its comment has the number of the promise in package engine. No verdict
// depends on the speed of the machine: if a test waits for a time, a slow machine only makes it find less.
package enginetest

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/countmill/countmill/store/engine"
)

// Under is an engine over an empty database, for one test.
type Under struct {
	Engine engine.Engine
	// Reopen closes Engine, and opens the same database again. Nil if the engine forgets.
	Reopen func(t *testing.T) engine.Engine
	// Tidy makes the engine rewrite its files, as it does over time. Nil if it has none.
	Tidy func(t *testing.T)
	// Another is one more process with the same database. Nil where Limits.Exclusive.
	Another func(t *testing.T) engine.Engine
	// HoldSyncs makes commits wait for the disk until release. CutPower ends the engine as a loss of power does, and opens
	// the database again. Nil if a test cannot do that.
	HoldSyncs func(t *testing.T) (release func())
	CutPower  func(t *testing.T) engine.Engine
	// Locks says that a commit waits while a Transact has read one of its rows.
	Locks bool
	// Parts is for emulators: the server shows a commit that is under way in parts. Tests then fix the moments of views beside
	// commits, and look when these have ended. An engine that needs it in production shows sums that never were.
	Parts bool
	// Rounds is the number of rounds of concurrent tests. Default 200.
	Rounds int
}

// The kinds of the suite.
const (
	meta   engine.KindID = iota // one document
	once                        // rows that expire
	shard                       // sums with places and parts
	record                      // sums by name
	doc                         // documents by name
	blob                        // documents with names of any bytes, which expire
)

// The fields of shard and record. A meta has only most.
const (
	most   engine.FieldID = 1
	due    engine.FieldID = 2
	tally  engine.FieldID = 3
	count  engine.FieldID = 4
	other  engine.FieldID = 5
	minute engine.FieldID = 16 // and all later ones
)

var sumFields = []engine.FieldSpec{
	{ID: most, Name: "most"}, {ID: due, Name: "due"}, {ID: tally, Name: "tally"},
	{ID: count, Name: "count", Wide: true}, {ID: other, Name: "other", Wide: true}, {ID: minute, Name: "m", Wide: true, Open: true},
}

// Kinds are the kinds of the suite.
func Kinds() engine.Kinds {
	dueOnly := []engine.FieldSpec{{ID: due, Name: "due"}}
	return engine.Kinds{
		meta:   {Name: "meta", Class: engine.Docs, Fields: []engine.FieldSpec{{ID: most, Name: "most"}}},
		once:   {Name: "once", Class: engine.Once, Binary: true, Due: due, Expires: true, Fields: dueOnly},
		shard:  {Name: "shard", Class: engine.Sums, Places: true, Parts: true, ByName: true, Due: due, Fields: sumFields},
		record: {Name: "record", Class: engine.Sums, Due: due, Fields: sumFields},
		doc:    {Name: "doc", Class: engine.Docs, ByName: true, Due: due, Fields: dueOnly},
		blob:   {Name: "blob", Class: engine.Docs, Binary: true, Due: due, Expires: true, Fields: dueOnly},
	}
}

// A suite is one test with its engine.
type suite struct {
	*testing.T
	*Under
	limits engine.Limits
}

type suiteTest struct {
	name string
	run  func(*suite)
}

// Run tests an engine. open returns an empty database of its own for each test, and closes it with t.Cleanup; tests run in
// parallel.
func Run(t *testing.T, open func(t *testing.T, kinds engine.Kinds) *Under) {
	for _, test := range slices.Concat(commitTests, transactTests, viewTests, scanTests, expiryTests, powerTests) {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			u := open(t, Kinds())
			if u.Rounds == 0 {
				u.Rounds = 200
			}
			test.run(&suite{t, u, u.Engine.Limits()})
		})
	}
}

// row makes keys.
func named(kind engine.KindID, name string) engine.Key { return engine.Key{Kind: kind, Name: name} }

func placed(place uint64, name string, part uint32) engine.Key {
	return engine.Key{Kind: shard, Place: place, Name: name, Part: part}
}

func numbers(of map[engine.FieldID]int64) (fields []engine.Field) {
	for id, n := range of {
		fields = append(fields, engine.Field{ID: id, Value: engine.IntOf(n)})
	}
	slices.SortFunc(fields, func(a, b engine.Field) int { return int(a.ID) - int(b.ID) })
	return fields
}

func one(id engine.FieldID, n int64) []engine.Field { return numbers(map[engine.FieldID]int64{id: n}) }

func add(key engine.Key, n int64) engine.Change {
	return engine.Change{Key: key, Add: one(count, n)}
}

func insert(name string, at int64) engine.Change {
	return engine.Change{Key: named(once, name), Op: engine.Insert, Set: one(due, at), Data: []byte(name)}
}

func put(key engine.Key, data string) engine.Change {
	return engine.Change{Key: key, Data: []byte(data)}
}

func del(key engine.Key) engine.Change { return engine.Change{Key: key, Op: engine.Delete} }

func (s *suite) ctx() context.Context { return s.Context() }

// try commits changes.
func (s *suite) try(changes ...engine.Change) (engine.Result, error) {
	return s.Engine.Commit(s.ctx(), &engine.Commit{Changes: inOrder(changes)})
}

// inOrder returns changes in the order of their keys.
func inOrder(changes []engine.Change) iter.Seq[*engine.Change] {
	changes = slices.SortedFunc(slices.Values(changes), func(a, b engine.Change) int { return a.Key.Compare(b.Key) })
	return engine.Changes(changes...)
}

// commit is try that has to succeed.
func (s *suite) commit(changes ...engine.Change) engine.Result {
	s.Helper()
	result, err := s.try(changes...)
	if err != nil {
		s.Fatal(err)
	}
	return result
}

// refused is try that has to fail, and to apply nothing.
func (s *suite) refused(want error, changes ...engine.Change) {
	s.Helper()
	if _, err := s.try(changes...); !errors.Is(err, want) {
		s.Errorf("got %v, want %v", err, want)
	}
}

// view opens a view that ends with the test.
func (s *suite) view() engine.View {
	v := s.Engine.View()
	s.Cleanup(v.Close)
	return v
}

// in reads a row in a view, whole if no fields are named.
func (s *suite) in(v engine.View, key engine.Key, fields ...engine.FieldID) *engine.Row {
	s.Helper()
	if len(fields) == 0 {
		fields = []engine.FieldID{engine.All}
	}
	rows, err := v.Get(s.ctx(), []engine.Key{key}, fields...)
	if err != nil || len(rows) != 1 || rows[0].Bad != "" {
		s.Fatalf("%v: got %+v, %v, want one good row", key, rows, err)
	}
	return &rows[0]
}

// get reads a row as it is now.
func (s *suite) get(key engine.Key, fields ...engine.FieldID) *engine.Row {
	s.Helper()
	v := s.Engine.View()
	defer v.Close()
	return s.in(v, key, fields...)
}

// want compares fields of a row; nil wants no row.
func (s *suite) want(key engine.Key, want map[engine.FieldID]int64) {
	s.Helper()
	s.wantRow(s.get(key), key, want)
}

func (s *suite) wantRow(row *engine.Row, key engine.Key, want map[engine.FieldID]int64) {
	s.Helper()
	if diff := cmp.Diff(numbers(want), slices.Concat(row.Fields)); row.Exists != (want != nil) || diff != "" {
		s.Errorf("%v: exists is %t, want %t; fields (-want +got):\n%s", key, row.Exists, want != nil, diff)
	}
}

func (s *suite) wantData(key engine.Key, want string) {
	s.Helper()
	if row := s.get(key, engine.Data); string(row.Data) != want || !row.Exists {
		s.Errorf("%v: exists is %t with %q, want %q", key, row.Exists, row.Data, want)
	}
}

// fields are numbers by their fields.
type fields = map[engine.FieldID]int64

// scan returns the keys of a range in a view.
func (s *suite) scan(v engine.View, r engine.Range, f ...engine.FieldID) (keys []engine.Key) {
	s.Helper()
	rows := v.Scan(s.ctx(), r, f...)
	defer rows.Close()
	for row := rows.Next(); row != nil; row = rows.Next() {
		if !row.Exists {
			s.Errorf("scan %+v: %v does not exist", r, row.Key)
		}
		key := row.Key
		key.Name = string([]byte(key.Name)) // borrowed
		keys = append(keys, key)
	}
	if err := rows.Err(); err != nil {
		s.Fatalf("scan %+v: %v", r, err)
	}
	return keys
}

func (s *suite) wantScan(r engine.Range, want ...engine.Key) {
	s.Helper()
	v := s.Engine.View()
	defer v.Close()
	if diff := cmp.Diff(slices.Concat(want), s.scan(v, r)); diff != "" {
		s.Errorf("scan %+v (-want +got):\n%s", r, diff)
	}
}

// transact runs a transaction that has to succeed.
func (s *suite) transact(do func(tx engine.Tx)) {
	s.Helper()
	if _, err := s.Engine.Transact(s.ctx(), false, func(tx engine.Tx) error { do(tx); return nil }); err != nil {
		s.Fatal(err)
	}
}

// read reads rows in a transaction.
func (s *suite) read(tx engine.Tx, keys ...engine.Key) []engine.Row {
	s.Helper()
	rows, err := tx.Get(s.ctx(), keys, engine.All)
	if err != nil || len(rows) != len(keys) {
		s.Fatalf("read %v in a transaction: %d rows and %v", keys, len(rows), err)
	}
	return rows
}

// soon waits until done is closed, but only for a moment: a call that has not ended by then may be right to wait.
func soon(done <-chan struct{}) bool {
	timer := time.NewTimer(50 * time.Millisecond)
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-timer.C:
		return false
	}
}

// inBackground runs f, and closes done at its end.
func inBackground(f func()) (done chan struct{}) {
	done = make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	return done
}

// meanwhile makes commits beside a transaction that is under way. came reports whether they have ended already: a commit
// may wait for the transaction only in an engine with locks.
func (s *suite) meanwhile(commits ...[]engine.Change) (done chan struct{}, came bool) {
	done = inBackground(func() {
		for _, changes := range commits {
			if _, err := s.try(changes...); err != nil {
				s.Errorf("the commit meanwhile: %v", err)
			}
		}
	})
	if s.Locks {
		return done, soon(done)
	}
	<-done
	return done, true
}

// watch calls look with views whose moments come before and after the end of commits, until ended is closed or look has
// found a fault.
func (s *suite) watch(ended <-chan struct{}, look func(v engine.View)) {
	var fixed []engine.View
	for more := true; more && !s.Failed(); {
		select {
		case <-ended:
			more = false
		default:
		}
		if s.Parts && len(fixed) < s.Rounds {
			v := s.view()
			_, _ = v.Get(s.ctx(), nil)
			fixed = append(fixed, v)
			continue
		}
		if s.Parts {
			<-ended
		}
		v := s.Engine.View()
		look(v)
		v.Close()
	}
	<-ended
	for _, v := range fixed {
		look(v)
	}
}

// rest lets the engine rewrite its files and open them again, if it can. Tests call it between changes of one row.
func (s *suite) rest(really bool) {
	if really && s.Tidy != nil {
		s.Tidy(s.T)
	}
	if really && s.Reopen != nil {
		s.Engine = s.Reopen(s.T)
	}
}

// counted applies changes once, also after an answer that leaves the outcome open: it inserts a row with the name id.
func (s *suite) counted(id string, require []engine.Require, changes ...engine.Change) error {
	changes = append(changes, insert(id, 1))
	for range 100 {
		_, err := s.Engine.Commit(s.ctx(), &engine.Commit{Changes: inOrder(changes), Require: require})
		switch {
		case err == nil, errors.Is(err, engine.ErrExists):
			return nil
		case errors.Is(err, engine.ErrOutdated), errors.Is(err, engine.ErrRefused), errors.Is(err, engine.ErrMissing):
			return err
		}
	}
	return fmt.Errorf("%s is not applied after 100 attempts", id)
}

// addAll counts a commit of each caller and round once, and ends when all have.
func (s *suite) addAll(callers, rounds int, changes func(caller, round int) []engine.Change) (ended chan struct{}) {
	return inBackground(func() {
		var group sync.WaitGroup
		for c := range callers {
			group.Go(func() {
				for i := range rounds {
					if err := s.counted(fmt.Sprintf("%d %d", c, i), nil, changes(c, i)...); err != nil {
						s.Error(err)
					}
				}
			})
		}
		group.Wait()
	})
}
