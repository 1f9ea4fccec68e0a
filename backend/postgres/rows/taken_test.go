package rows

import (
	"errors"
	"testing"
	"time"

	"github.com/countmill/countmill/store/engine"
	"github.com/countmill/countmill/store/engine/enginetest"
)

// A commit takes rows that are all there, and otherwise applies nothing.
func TestTakenRows(t *testing.T) {
	t.Parallel()
	url := schema(t)
	e, err := openWith(url, enginetest.Kinds(), Options{Create: true, Taken: "added"})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	for _, sql := range []string{"create table " + quoted(e.schema, "added") + " (id bigint primary key)", "insert into " + quoted(e.schema, "added") + " select generate_series(1, 3)"} {
		if _, err := e.Pool().Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		ids  []int64
		want error
	}{{[]int64{1, 2}, nil}, {[]int64{2, 3}, engine.ErrExists}, {[]int64{3}, nil}, {[]int64{3}, engine.ErrExists}} {
		c := add("a", engine.Field{ID: tally, Value: engine.IntOf(1)})
		c.Taken = tt.ids
		if _, err := e.Commit(t.Context(), c); !errors.Is(err, tt.want) {
			t.Errorf("taking %d: got %v, want %v", tt.ids, err, tt.want)
		}
	}
	if row := read(t, e, engine.Key{Kind: record, Name: "a"}); row.Int64(tally) != 2 {
		t.Errorf("%d commits were applied, want 2", row.Int64(tally))
	}
}

// A view that began before a commit was visible has an earlier moment than the commit.
func TestTimesOfCommits(t *testing.T) {
	t.Parallel()
	e := open(t, schema(t), enginetest.Kinds())
	for range 20 {
		v := e.View(time.Time{})
		if _, err := v.Get(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		done, err := e.Commit(t.Context(), add("a", engine.Field{ID: tally, Value: engine.IntOf(1)}))
		if err != nil || !done.At.After(v.At()) {
			t.Errorf("the commit is of %s, and the view that lacks it of %s (%v)", done.At, v.At(), err)
		}
		v.Close()
	}
}

// On another server, or another timeline, no transaction is taken before a check has written that down. It counts once.
func TestOtherServer(t *testing.T) {
	t.Parallel()
	url := schema(t)
	e, other := open(t, url, enginetest.Kinds()), open(t, url, enginetest.Kinds())
	key := engine.Key{Kind: record, Name: "a"}
	set := func(e *Engine) error {
		_, err := e.Transact(t.Context(), false, func(tx engine.Tx) error {
			tx.Change(&engine.Change{Key: key, Set: []engine.Field{{ID: tally, Value: engine.IntOf(1)}}})
			return nil
		})
		return err
	}
	check := func(e *Engine) int64 {
		t.Helper()
		checked, err := e.Check(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		return checked.Restores
	}
	if n, err := check(e), set(e); n != 0 || err != nil {
		t.Fatalf("a new database: %d restores, %v", n, err)
	}
	// The schema comes from a backup of another server.
	if _, err := e.Pool().Exec(t.Context(), "update "+quoted(e.schema, metaTable)+" set origin = 'another 00000009'"); err != nil {
		t.Fatal(err)
	}
	unchecked := open(t, url, enginetest.Kinds())
	if err := set(unchecked); !errors.Is(err, engine.ErrNotApplied) {
		t.Errorf("before a check: %v, want ErrNotApplied", err)
	}
	var restores int64
	commit := func() error {
		_, err := e.Commit(t.Context(), &engine.Commit{Restores: &restores})
		return err
	}
	if err := commit(); !errors.Is(err, engine.ErrOutdated) {
		t.Errorf("a commit that rests on reads of the server before: %v, want ErrOutdated", err)
	}
	for i, e := range []*Engine{unchecked, other, unchecked, other} {
		if n := check(e); n != 1 {
			t.Errorf("check %d: %d restores, want 1", i, n)
		}
	}
	if err := set(unchecked); err != nil {
		t.Errorf("after a check: %v", err)
	}
	if err := commit(); !errors.Is(err, engine.ErrOutdated) {
		t.Errorf("a commit that rests on reads of the server before, after the check of another process: %v, want ErrOutdated", err)
	}
	if restores++; commit() != nil {
		t.Errorf("a commit that rests on reads after a check: %v", commit())
	}
}
