package memory_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countmill/countmill/store/engine"
	"github.com/countmill/countmill/store/engine/enginetest"
	"github.com/countmill/countmill/store/engine/memory"
)

// Kinds and a field of the suite.
const (
	once, record engine.KindID  = 1, 3
	due, count   engine.FieldID = 2, 4
)

func key(name string) engine.Key { return engine.Key{Kind: record, Name: name} }

func add(name string) engine.Change {
	return engine.Change{Key: key(name), Add: []engine.Field{{ID: count, Value: engine.IntOf(1)}}}
}

func commit(ctx context.Context, e engine.Engine, soft bool, changes ...engine.Change) error {
	_, err := e.Commit(ctx, &engine.Commit{Changes: engine.Changes(changes...), Soft: soft})
	return err
}

func get(t *testing.T, e engine.Engine, key engine.Key) engine.Row {
	t.Helper()
	v := e.View()
	defer v.Close()
	rows, err := v.Get(t.Context(), []engine.Key{key}, engine.All)
	if err != nil {
		t.Fatal(err)
	}
	return rows[0]
}

func wantCount(t *testing.T, e engine.Engine, want int64) {
	t.Helper()
	if row := get(t, e, key("a")); row.Int64(count) != want {
		t.Errorf("the row has %d, want %d", row.Int64(count), want)
	}
}

// Each call can be lost with its effect or without it, and refused.
func TestAnswers(t *testing.T) {
	t.Parallel()
	d := memory.New(enginetest.Kinds(), memory.Options{})
	e, lost := d.Open(), errors.New("lost")
	n := int64(0)
	answer := memory.Answer{}
	var seen []memory.Op
	d.OnCall(func(c *memory.Call) memory.Answer {
		seen = append(seen, c.Op)
		if len(c.Changes) > 0 {
			return answer
		}
		return memory.Answer{}
	})
	transact := func(ctx context.Context) error {
		_, err := e.Transact(ctx, false, func(tx engine.Tx) error {
			_, err := tx.Get(ctx, []engine.Key{key("a")})
			c := add("a")
			tx.Change(&c)
			return err
		})
		return err
	}
	for _, answer = range []memory.Answer{{}, {Err: lost}, {Err: lost, Applied: true}, {Err: engine.ErrRefused}, {Err: engine.ErrConflict}} {
		for _, err := range []error{
			commit(t.Context(), e, false, add("a")), transact(t.Context()),
		} {
			if !errors.Is(err, answer.Err) {
				t.Errorf("got %v, want %v", err, answer.Err)
			}
			if answer.Err == nil || answer.Applied {
				n++
			}
		}
		wantCount(t, e, n)
	}
	if want := fmt.Sprint([]memory.Op{memory.Commit, memory.TxGet, memory.Transact, memory.Get}); fmt.Sprint(seen[:4]) != want {
		t.Errorf("the calls are %v, want %s", seen[:4], want)
	}
	d.OnCall(func(*memory.Call) memory.Answer { return memory.Answer{Err: lost} })
	v := e.View()
	_, getErr := v.Get(t.Context(), []engine.Key{key("a")})
	scan := v.Scan(t.Context(), engine.Range{Kind: record})
	scan.Next()
	_, _, dueErr := e.Due(t.Context(), record, 1, "", 1)
	_, checkErr := e.Check(t.Context(), nil)
	for i, err := range []error{getErr, scan.Err(), dueErr, checkErr, transact(t.Context())} {
		if !errors.Is(err, lost) {
			t.Errorf("call %d: got %v, want the answer", i, err)
		}
	}
}

// A call is late for as long as its function blocks, in the time of a bubble.
func TestLate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := memory.New(enginetest.Kinds(), memory.Options{Limits: engine.Limits{Clock: true}})
		e, began := d.Open(), time.Now()
		d.OnCall(func(c *memory.Call) memory.Answer {
			if c.Op == memory.Commit {
				time.Sleep(time.Minute)
			}
			return memory.Answer{}
		})
		go wantCount(t, e, 0)
		result, err := e.Commit(t.Context(), &engine.Commit{Changes: engine.Changes(add("a"))})
		if err != nil || result.At.Sub(began) != time.Minute {
			t.Errorf("the commit was applied after %s (%v), want a minute", result.At.Sub(began), err)
		}
		wantCount(t, e, 1)
	})
}

// A loss of power takes the soft commits after the last durable one where one process has the database, and ends every engine.
func TestPower(t *testing.T) {
	t.Parallel()
	d := memory.New(enginetest.Kinds(), memory.Options{Limits: engine.Limits{Exclusive: true}})
	e := d.Open()
	for i, soft := range []bool{true, false, true, true} {
		if err := commit(t.Context(), e, soft, add("a"), add(fmt.Sprint("b", i))); err != nil {
			t.Fatal(err)
		}
	}
	wantCount(t, e, 4)
	d.CutPower()
	if err := commit(t.Context(), e, false, add("a")); err == nil {
		t.Error("an engine goes on after its power was cut")
	}
	e = d.Open()
	wantCount(t, e, 2)
	if get(t, e, key("b2")).Exists || !get(t, e, key("b1")).Exists {
		t.Error("a soft commit survives, or a durable one does not")
	}
	release := d.HoldSyncs()
	ended := make(chan error)
	go func() { ended <- commit(t.Context(), e, false, add("a")) }()
	release()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	d.CutPower()
	wantCount(t, d.Open(), 3)
}

func TestFaults(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC)
	mistakes := 0
	d := memory.New(enginetest.Kinds(), memory.Options{
		Limits: engine.Limits{Expires: true}, Clock: func() time.Time { return now }, Errorf: func(string, ...any) { mistakes++ },
	})
	e := d.Open()
	insert := engine.Change{Key: engine.Key{Kind: once, Name: "id"}, Op: engine.Insert, Set: []engine.Field{{ID: due, Value: engine.IntOf(now.UnixMicro())}}}
	if err := commit(t.Context(), e, false, insert, add("a")); err != nil {
		t.Fatal(err)
	}
	if d.Expire(now); !get(t, e, insert.Key).Exists {
		t.Error("the row has expired at its time")
	}
	if d.Expire(now.Add(time.Second)); get(t, e, insert.Key).Exists {
		t.Error("the row has not expired after its time")
	}
	if d.Damage(key("a"), "a reason"); get(t, e, key("a")).Bad != "a reason" {
		t.Errorf("the damaged row is %+v", get(t, e, key("a")))
	}
	d.Fail(engine.ErrReadOnly, 3)
	if checked, err := e.Check(t.Context(), nil); !errors.Is(err, engine.ErrReadOnly) || checked.Restores != 3 {
		t.Errorf("the check answers %+v and %v", checked, err)
	}
	_ = commit(t.Context(), e, false, add("b"), add("b"))
	_, _ = e.View().Get(t.Context(), make([]engine.Key, 1001))
	scan := e.View().Scan(t.Context(), engine.Range{Kind: once})
	if scan.Next(); mistakes != 3 || !errors.Is(scan.Err(), engine.ErrRefused) {
		t.Errorf("%d mistakes were reported, want 3; the last is %v", mistakes, scan.Err())
	}
}

// A commit of ten rows.
func BenchmarkCommit(b *testing.B) {
	e := memory.New(enginetest.Kinds(), memory.Options{}).Open()
	c := add("")
	names := make([]string, 10)
	for i := range names {
		names[i] = fmt.Sprintf("page:%d", i)
	}
	changes := func(yield func(*engine.Change) bool) {
		for i := range names {
			if c.Key.Name = names[i]; !yield(&c) {
				return
			}
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := e.Commit(context.Background(), &engine.Commit{Changes: changes}); err != nil {
			b.Fatal(err)
		}
	}
}

// A view that looks up two rows.
func BenchmarkView(b *testing.B) {
	e := memory.New(enginetest.Kinds(), memory.Options{}).Open()
	keys := []engine.Key{key("a"), key("b")}
	b.ReportAllocs()
	for b.Loop() {
		v := e.View()
		if _, err := v.Get(context.Background(), keys, count); err != nil {
			b.Fatal(err)
		}
		v.Close()
	}
}
