package rows

import (
	"context"
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

// A change of a row that commits require waits for the commits before it, and later ones wait for the change. The row would otherwise
// never be free beside many commits.
func TestChangesOfSettings(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	e := open(t, schema(t), enginetest.Kinds())
	key := engine.Key{Kind: 0, Name: "settings"}
	field := []engine.Field{{ID: e.tables[0].columns[0].id, Value: engine.IntOf(1)}}
	before, err := e.Pool().Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer before.Rollback(context.Background())
	if _, err := before.Exec(ctx, "lock table "+e.tables[0].name+" in row share mode"); err != nil { // as a commit does that requires a row
		t.Fatal(err)
	}
	changed, after := make(chan error, 1), make(chan error, 1)
	waiting := func(n int) {
		t.Helper()
		for got := 0; got < n; {
			select {
			case err := <-changed:
				t.Fatalf("the change does not wait: %v", err)
			case err := <-after:
				t.Fatalf("the commit does not wait: %v", err)
			default:
			}
			if err := e.Pool().QueryRow(ctx, "select count(*) from pg_locks where not granted and relation = to_regclass($1)", e.tables[0].name).Scan(&got); err != nil {
				t.Fatal(err)
			}
		}
	}
	go func() {
		_, err := e.Transact(ctx, false, func(tx engine.Tx) error {
			_, err := tx.Get(ctx, []engine.Key{key}, engine.All)
			tx.Change(&engine.Change{Key: key, Set: field})
			return err
		})
		changed <- err
	}()
	waiting(1)
	go func() {
		c := add("a", engine.Field{ID: tally, Value: engine.IntOf(1)})
		c.Require = []engine.Require{{Key: key, Field: field[0].ID}}
		_, err := e.Commit(ctx, c)
		after <- err
	}()
	waiting(2)
	if err := before.Rollback(ctx); err != nil {
		t.Fatal(err)
	}
	if err := <-changed; err != nil {
		t.Error(err)
	}
	if err := <-after; !errors.Is(err, engine.ErrOutdated) {
		t.Errorf("a commit after the change: got %v, want ErrOutdated", err)
	}
}

// A change of settings is refused that comes long after its reads: folds by the settings before were taken meanwhile.
func TestLateChangesOfSettings(t *testing.T) {
	t.Parallel()
	e := open(t, schema(t), enginetest.Kinds())
	key := engine.Key{Kind: 0, Name: "settings"}
	for _, tt := range []struct {
		longest time.Duration
		want    error
	}{{time.Nanosecond, engine.ErrNotApplied}, {longest, nil}} {
		e.longest = tt.longest
		_, err := e.Transact(t.Context(), false, func(tx engine.Tx) error {
			_, err := tx.Get(t.Context(), []engine.Key{key})
			tx.Change(&engine.Change{Key: key, Data: []byte("x")})
			return err
		})
		if !errors.Is(err, tt.want) || read(t, e, key).Exists != (tt.want == nil) {
			t.Errorf("within %s: %v, want %v", tt.longest, err, tt.want)
		}
	}
}

// A view that began before a commit was visible has an earlier moment than the commit.
func TestTimesOfCommits(t *testing.T) {
	t.Parallel()
	e := open(t, schema(t), enginetest.Kinds())
	for range 20 {
		v := e.View()
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
	var says int64 // the transaction's restores
	set := func(e *Engine, meanwhile ...func()) error {
		_, err := e.Transact(t.Context(), false, func(tx engine.Tx) error {
			for _, do := range meanwhile {
				do()
			}
			says = tx.Restores()
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
	if _, err := e.Pool().Exec(t.Context(), "update "+e.meta+" set origin = 'another 00000009'"); err != nil {
		t.Fatal(err)
	}
	unchecked, checking := open(t, url, enginetest.Kinds()), open(t, url, enginetest.Kinds())
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
	if err := set(checking, func() { check(checking) }); !errors.Is(err, engine.ErrNotApplied) || says != 0 {
		t.Errorf("a check in a transaction that does not know what it says: %v, %d restores, want ErrNotApplied", err, says)
	}
	for i, e := range []*Engine{unchecked, other, unchecked, other} {
		if n := check(e); n != 1 {
			t.Errorf("check %d: %d restores, want 1", i, n)
		}
	}
	for _, e := range []*Engine{unchecked, open(t, url, enginetest.Kinds())} {
		if err := set(e); err != nil || says != 1 {
			t.Errorf("a transaction after a check: %v, %d restores, want 1", err, says)
		}
	}
	for _, change := range []string{"origin = ''", "restores = 2, origin = '" + other.known.Load().server + "'", "restores = 1"} {
		if _, err := e.Pool().Exec(t.Context(), "update "+e.meta+" set "+change); err != nil {
			t.Fatal(err)
		}
		if err := set(unchecked); errors.Is(err, engine.ErrNotApplied) == (change == "restores = 1") {
			t.Errorf("a transaction by a check before %s: %v", change, err)
		}
	}
	if err := commit(); !errors.Is(err, engine.ErrOutdated) {
		t.Errorf("a commit that rests on reads of the server before, after the check of another process: %v, want ErrOutdated", err)
	}
	if restores++; commit() != nil {
		t.Errorf("a commit that rests on reads after a check: %v", commit())
	}
}
