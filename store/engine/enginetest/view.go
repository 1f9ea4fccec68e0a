package enginetest

import (
	"sync"
	"time"

	"github.com/countmill/countmill/store/engine"
)

var viewTests = []suiteTest{
	{"ViewIsPinned", testViewIsPinned},
	{"ViewBeginsAtItsFirstCall", testViewBeginsAtItsFirstCall},
	{"ViewIsClosed", testViewIsClosed},
	{"FieldsAreChosen", testFieldsAreChosen},
	{"MomentsCoverCommits", testMomentsCoverCommits},
	{"MomentsOrderViews", testMomentsOrderViews},
	{"MomentsRise", testMomentsRise},
	{"CheckAnswers", testCheckAnswers},
	{"OtherProcessesSee", testOtherProcessesSee},
	{"ReopenedHasAll", testReopenedHasAll},
	{"ClosedAnswersErrors", testClosedAnswersErrors},
}

// V3.
func testViewIsPinned(s *suite) {
	a, b, d := placed(1, "a", 0), placed(2, "b", 0), named(doc, "d")
	s.commit(add(a, 1), put(d, "old"), add(named(record, "r"), 1))
	v := s.view()
	s.in(v, a)
	at := v.At()
	scan := v.Scan(s.ctx(), engine.Range{Kind: shard}, engine.All)
	defer scan.Close()
	s.commit(add(a, 1), add(b, 1), put(d, "new"), del(named(record, "r")))
	s.commit(add(a, 1), del(d))
	s.wantRow(s.in(v, a), a, fields{count: 1})
	s.wantRow(s.in(v, b), b, nil)
	s.wantRow(s.in(v, named(record, "r")), named(record, "r"), fields{count: 1})
	if row := s.in(v, d); string(row.Data) != "old" {
		s.Errorf("the view has %q, want old", row.Data)
	}
	if row := scan.Next(); row == nil || row.Int64(count) != 1 || scan.Next() != nil {
		s.Errorf("a scan of the view has %+v, want one row with 1", row)
	}
	for kind, want := range map[engine.KindID]int{shard: 1, record: 1, doc: 1} {
		if keys := s.scan(v, engine.Range{Kind: kind}); len(keys) != want {
			s.Errorf("the view has %v, want %d rows", keys, want)
		}
	}
	if !v.At().Equal(at) {
		s.Errorf("the moment moved from %s to %s", at, v.At())
	}
	s.want(a, fields{count: 3})
}

func testViewBeginsAtItsFirstCall(s *suite) {
	a := named(record, "a")
	v, w, fixed := s.view(), s.view(), s.view()
	if _, err := fixed.Get(s.ctx(), nil); err != nil || fixed.At().IsZero() {
		s.Errorf("a view has the moment %s after a call without keys (%v)", fixed.At(), err)
	}
	scan := w.Scan(s.ctx(), engine.Range{Kind: record}, count)
	defer scan.Close()
	if !v.At().IsZero() {
		s.Errorf("a view has the moment %s before its first call", v.At())
	}
	s.commit(add(a, 1))
	s.wantRow(s.in(v, a), a, fields{count: 1})
	s.wantRow(s.in(fixed, a), a, nil)
	if row := scan.Next(); row == nil || row.Int64(count) != 1 || v.At().IsZero() || w.At().IsZero() {
		s.Errorf("Next has %+v (%v), want a commit that came after Scan and before Next; the moments are %s and %s", row, scan.Err(), v.At(), w.At())
	}
}

func testViewIsClosed(s *suite) {
	a := named(record, "a")
	s.commit(add(a, 1))
	v := s.view()
	s.in(v, a)
	open := v.Scan(s.ctx(), engine.Range{Kind: record})
	v.Close()
	v.Close()
	open.Close()
	open.Close()
	if rows, err := v.Get(s.ctx(), []engine.Key{a}); err == nil {
		s.Errorf("a closed view answers %v", rows)
	}
	late := v.Scan(s.ctx(), engine.Range{Kind: record})
	if row := late.Next(); row != nil || late.Err() == nil {
		s.Errorf("a scan of a closed view has %v", row)
	}
}

// A read has the fields that it asks for, and no others.
func testFieldsAreChosen(s *suite) {
	a, d := placed(1, "a", 0), named(doc, "d")
	all := fields{count: 5, tally: 2, minute: 3, minute + 77: 4}
	s.commit(engine.Change{Key: a, Set: one(tally, 2), Add: numbers(fields{count: 5, minute: 3, minute + 77: 4})},
		engine.Change{Key: d, Set: one(due, 1), Data: []byte("data")})
	v := s.view()
	for _, tt := range []struct {
		ask  []engine.FieldID
		want fields
	}{
		{[]engine.FieldID{engine.All}, all},
		{[]engine.FieldID{count}, fields{count: 5}},
		{[]engine.FieldID{minute + 77, due, tally}, fields{tally: 2, minute + 77: 4}},
		{[]engine.FieldID{engine.Data}, fields{}},
	} {
		s.wantRow(s.in(v, a, tt.ask...), a, tt.want)
		rows := v.Scan(s.ctx(), engine.Range{Kind: shard}, tt.ask...)
		row := rows.Next()
		if row == nil {
			s.Fatal(rows.Err())
		}
		s.wantRow(row, a, tt.want)
		rows.Close()
	}
	docs := v.Scan(s.ctx(), engine.Range{Kind: doc}, engine.Data)
	defer docs.Close()
	if row := docs.Next(); row == nil || string(row.Data) != "data" || len(row.Fields) > 0 {
		s.Errorf("a scan of the data has %+v (%v)", row, docs.Err())
	}
	rows, err := v.Get(s.ctx(), []engine.Key{named(doc, "none"), d, a, d}) // in any order, and one twice
	if err != nil || rows[0].Exists || !rows[1].Exists || !rows[2].Exists || !rows[3].Exists || len(rows[1].Fields)+len(rows[2].Fields)+len(rows[1].Data) > 0 {
		s.Errorf("a read without fields: %+v and %v", rows, err)
	}
	if row := s.in(v, d, due); len(row.Data) > 0 || row.Int64(due) != 1 {
		s.Errorf("a read of one field has %+v", row)
	}
	if row := s.in(v, d, engine.Data); string(row.Data) != "data" || len(row.Fields) > 0 {
		s.Errorf("a read of the data has %+v", row)
	}
}

// V1, V5, interleaving 9: a view has every commit that was acknowledged before its moment.
func testMomentsCoverCommits(s *suite) {
	a := named(record, "a")
	last := time.Time{}
	for i := range int64(20) {
		result := s.commit(add(a, 1))
		moment := s.Engine.Moment()
		v := s.Engine.View()
		row := s.in(v, a)
		if row.Int64(count) != i+1 || v.At().Before(result.At) || v.At().Before(last) || v.At().Before(moment) {
			s.Fatalf("a view of %s has %d of %d; the commit was at %s, the moment %s, the view before %s", v.At(), row.Int64(count), i+1, result.At, moment, last)
		}
		if s.limits.Clock == result.At.IsZero() || s.limits.Exclusive == moment.IsZero() {
			s.Fatalf("the commit was at %s, and the moment is %s", result.At, moment)
		}
		if last = v.At(); !last.Equal(last.Truncate(time.Microsecond)) {
			s.Fatalf("the moment %s has more than microseconds", last)
		}
		v.Close()
		if again := s.commit(add(named(record, "b"), 1)); s.limits.Clock && again.At.Before(last) {
			s.Fatalf("a commit after the view of %s was at %s", last, again.At)
		}
	}
}

// V2, interleaving 10: of two views, the later one has everything of the other.
func testMomentsOrderViews(s *suite) {
	keys := []engine.Key{placed(1, "a", 0), placed(2, "b", 0)}
	type seen struct {
		at  time.Time
		sum int64
	}
	var all []seen
	ended := s.addAll(2, max(s.Rounds/4, 10), func(c, _ int) []engine.Change { return []engine.Change{add(keys[c], 1)} })
	var mu sync.Mutex
	look := func(v engine.View) {
		sum := s.in(v, keys[0]).Int64(count) + s.in(v, keys[1]).Int64(count)
		mu.Lock()
		defer mu.Unlock()
		if len(all) < 1000 {
			all = append(all, seen{v.At(), sum})
		}
	}
	other := inBackground(func() { s.watch(ended, look) })
	s.watch(ended, look)
	<-other
	for _, a := range all {
		for _, b := range all {
			if a.at.Before(b.at) && a.sum > b.sum || a.at.Equal(b.at) && a.sum != b.sum {
				s.Fatalf("a view of %s has %d, and one of %s has %d", a.at, a.sum, b.at, b.sum)
			}
		}
	}
}

// V6.
func testMomentsRise(s *suite) {
	if !s.limits.Exclusive {
		if m := s.Engine.Moment(); !m.IsZero() {
			s.Errorf("an engine that is not alone has the moment %s", m)
		}
		return
	}
	last := s.Engine.Moment()
	rise := func(what string) {
		s.Helper()
		v := s.view()
		s.in(v, named(record, "a"))
		for _, m := range []time.Time{v.At(), s.Engine.Moment(), s.Engine.Moment()} {
			if !m.After(last) {
				s.Fatalf("%s: the moment %s comes after %s", what, m, last)
			}
			last = m
		}
	}
	rise("at first")
	s.commit(add(named(record, "a"), 1))
	rise("after a commit")
	last = last.Add(time.Hour)
	s.Engine.Resume(last)
	rise("after Resume")
	s.Engine.Resume(last.Add(-2 * time.Hour))
	rise("after Resume of an earlier moment")
	if s.Reopen != nil {
		s.Engine = s.Reopen(s.T)
		rise("after a restart")
	}
}

func testCheckAnswers(s *suite) {
	m := named(meta, "settings")
	s.commit(engine.Change{Key: m, Set: one(most, 4), Data: []byte("rules")})
	checked, err := s.Engine.Check(s.ctx(), []engine.Key{named(meta, "none"), m})
	if err != nil || len(checked.Rows) != 2 || checked.Rows[0].Exists || string(checked.Rows[1].Data) != "rules" || checked.Rows[1].Int64(most) != 4 {
		s.Errorf("got %+v and %v", checked, err)
	}
	if checked.At.IsZero() == s.limits.Clock {
		s.Errorf("the time of the answer is %s", checked.At)
	}
	s.transact(func(tx engine.Tx) {
		if got := tx.Restores(); got != checked.Restores {
			s.Errorf("a transaction after a check of %d restores says %d", checked.Restores, got)
		}
	})
}

func testOtherProcessesSee(s *suite) {
	if s.Another == nil {
		s.Skip("no other process can have the database")
	}
	a := placed(1, "a", 0)
	mine, others := s.Engine, s.Another(s.T)
	s.commit(add(a, 1))
	s.Engine = others
	s.want(a, fields{count: 1})
	s.commit(add(a, 1))
	s.beside([]engine.Key{a}, add(a, 1))
	s.Engine = mine
	s.want(a, fields{count: 3})
}

// C1: a restart loses nothing, and brings nothing back.
func testReopenedHasAll(s *suite) {
	if s.Reopen == nil {
		s.Skip("the engine forgets")
	}
	a, d := placed(9, "a", 4), named(doc, "d")
	s.commit(engine.Change{Key: a, Set: one(due, 3), Add: numbers(fields{count: 1 << 40, minute + 9: -7})}, put(d, "data"), insert("id", 5), add(named(record, "gone"), 1))
	s.commit(del(named(record, "gone")), add(a, 1))
	for range 2 {
		s.Engine = s.Reopen(s.T)
		s.want(a, fields{count: 1<<40 + 1, minute + 9: -7, due: 3})
		s.wantData(d, "data")
		s.want(named(once, "id"), fields{due: 5})
		s.want(named(record, "gone"), nil)
		s.refused(engine.ErrExists, insert("id", 6))
		s.wantScan(engine.Range{Kind: shard}, a)
	}
}

func testClosedAnswersErrors(s *suite) {
	a := named(record, "a")
	s.commit(add(a, 1))
	if err := s.Engine.Close(); err != nil {
		s.Fatal(err)
	}
	_, commitErr := s.try(add(a, 1))
	_, transactErr := s.Engine.Transact(s.ctx(), false, func(tx engine.Tx) error {
		_, err := tx.Get(s.ctx(), []engine.Key{a})
		return err
	})
	_, viewErr := s.view().Get(s.ctx(), []engine.Key{a})
	_, checkErr := s.Engine.Check(s.ctx(), nil)
	_, _, dueErr := s.Engine.Due(s.ctx(), record, 1, "", 1)
	expireErr := s.Engine.Expire(s.ctx(), once, 1)
	for call, err := range map[string]error{"Commit": commitErr, "Transact": transactErr, "View.Get": viewErr, "Check": checkErr, "Due": dueErr, "Expire": expireErr} {
		if err == nil {
			s.Errorf("%s of a closed engine succeeds", call)
		}
	}
}
