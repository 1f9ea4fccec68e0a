package enginetest

import (
	"errors"
	"fmt"

	"github.com/countmill/countmill/store/engine"
)

// Tests of engines that can lose their power, but for the first.
var powerTests = []suiteTest{
	{"SoftIsShown", testSoftIsShown},
	{"SoftIsImplied", testSoftIsImplied},
	{"AcknowledgedIsDurable", testAcknowledgedIsDurable},
	{"AnswersAreDurable", testAnswersAreDurable},
}

func (s *suite) soft(changes ...engine.Change) {
	s.Helper()
	if _, err := s.Engine.Commit(s.ctx(), &engine.Commit{Changes: inOrder(changes), Soft: true}); err != nil {
		s.Fatal(err)
	}
}

func testSoftIsShown(s *suite) {
	a := named(record, "a")
	s.soft(add(a, 1))
	s.want(a, fields{count: 1})
	if _, err := s.Engine.Transact(s.ctx(), true, func(tx engine.Tx) error {
		n := s.read(tx, a)[0].Int64(count)
		tx.Change(&engine.Change{Key: a, Set: one(tally, n+1)})
		return nil
	}); err != nil {
		s.Fatal(err)
	}
	s.want(a, fields{count: 1, tally: 2})
	s.rest(true)
	s.want(a, fields{count: 1, tally: 2})
}

// C5, interleaving 7.
func testSoftIsImplied(s *suite) {
	if s.CutPower == nil {
		s.Skip("a test cannot cut the power")
	}
	a, b := named(record, "a"), placed(1, "b", 0)
	for i := range int64(5) {
		s.soft(add(a, 1))
		s.commit(add(b, 1))
		s.soft(add(a, 100), del(b)) // may go where no process outlives the crash, and nothing else
		s.Engine = s.CutPower(s.T)
		got, also := s.get(a).Int64(count)%100, s.get(b)
		if got != i+1 {
			s.Fatalf("%d soft commits came before a durable one, and %d are there", i+1, got)
		}
		if !also.Exists {
			s.commit(add(b, i+1))
		} else if !s.limits.Exclusive {
			s.Fatal("a soft commit is gone, and a process that outlives the crash relies on it")
		} else if also.Int64(count) != i+1 {
			s.Fatalf("the durable row has %d, want %d", also.Int64(count), i+1)
		}
	}
}

func testAcknowledgedIsDurable(s *suite) {
	if s.CutPower == nil {
		s.Skip("a test cannot cut the power")
	}
	a := placed(1, "a", 0)
	for i := range int64(5) {
		s.commit(insert(fmt.Sprint(i), start), add(a, 1))
		s.transact(func(tx engine.Tx) {
			n := s.read(tx, a)[0].Int64(count)
			tx.Change(&engine.Change{Key: a, Set: one(tally, n)})
		})
		s.Engine = s.CutPower(s.T)
		s.want(a, fields{count: i + 1, tally: i + 1})
		s.refused(engine.ErrExists, insert(fmt.Sprint(i), start))
	}
}

// T3, V4, interleaving 6: a commit takes effect, and the disk does not have it yet. No call may say that it is there before the disk
// has it: with the power gone, that answer would be wrong.
func testAnswersAreDurable(s *suite) {
	if s.CutPower == nil || s.HoldSyncs == nil {
		s.Skip("a test cannot cut the power, or hold the disk")
	}
	mark := named(once, "id")
	errFound := errors.New("found")
	calls := map[string]func() bool{
		"an Insert": func() bool {
			_, err := s.try(insert("id", start+5*day))
			return errors.Is(err, engine.ErrExists)
		},
		"a transaction without changes": func() (found bool) {
			_, err := s.Engine.Transact(s.ctx(), false, func(tx engine.Tx) error {
				rows, err := tx.Get(s.ctx(), []engine.Key{mark})
				found = err == nil && rows[0].Exists
				return err
			})
			return found && err == nil
		},
		"the error of a transaction": func() bool {
			_, err := s.Engine.Transact(s.ctx(), false, func(tx engine.Tx) error {
				rows, err := tx.Get(s.ctx(), []engine.Key{mark})
				if err == nil && rows[0].Exists {
					return errFound
				}
				return err
			})
			return errors.Is(err, errFound)
		},
		"a view": func() bool {
			v := s.Engine.View()
			defer v.Close()
			rows, err := v.Get(s.ctx(), []engine.Key{mark})
			return err == nil && rows[0].Exists
		},
	}
	for name, call := range calls {
		release := s.HoldSyncs(s.T)
		first := inBackground(func() { _, _ = s.try(insert("id", start)) })
		soon(first)
		said := false
		second := inBackground(func() { said = call() })
		before := soon(second)
		s.Engine = s.CutPower(s.T)
		<-first
		<-second
		release()
		if before && said && !s.get(mark).Exists {
			s.Errorf("%s said that a row exists, and a loss of power took it", name)
		}
	}
}
