package rows

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/countmill/countmill/internal/testing/emulator"
	"github.com/countmill/countmill/store/engine"
	"github.com/countmill/countmill/store/engine/enginetest"
	"github.com/countmill/countmill/store/protocol"
)

func add(name string, fields ...engine.Field) *engine.Commit {
	return &engine.Commit{Changes: engine.Changes(engine.Change{Key: engine.Key{Kind: record, Name: name}, Add: fields})}
}

// Each condition of the server has its error, and nothing is applied.
func TestAnswers(t *testing.T) {
	t.Parallel()
	url := schema(t)
	e := open(t, url, enginetest.Kinds())
	readOnly := open(t, url+"&default_transaction_read_only=on", enginetest.Kinds())
	full := add("a", engine.Field{ID: tally, Value: engine.IntOf(math.MaxInt64)})
	if _, err := e.Commit(t.Context(), full); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		e    *Engine
		c    *engine.Commit
		want error
	}{
		"a number out of range":      {e, full, engine.ErrRefused},
		"a name that no index takes": {e, add(random(6000)), engine.ErrRefused},
		"a name with a zero":         {e, add("a\x00"), engine.ErrRefused},
		"a read-only database":       {readOnly, add("b"), engine.ErrNotApplied},
	} {
		if _, err := tt.e.Commit(t.Context(), tt.c); !errors.Is(err, tt.want) {
			t.Errorf("%s: got %v, want %v", name, err, tt.want)
		}
	}
	if _, err := readOnly.Check(t.Context(), nil); !errors.Is(err, engine.ErrReadOnly) {
		t.Errorf("the check of a read-only database: %v", err)
	}
	if row := read(t, e, engine.Key{Kind: record, Name: "a"}); row.Int64(tally) != math.MaxInt64 || row.Int64(count) != 0 {
		t.Errorf("the row is %+v", row)
	}
}

// random returns a name that does not get smaller by compression.
func random(n int) string {
	name, state := make([]byte, n), uint64(1)
	for i := range name {
		state = state*6364136223846793005 + 1442695040888963407
		name[i] = byte(' ' + state>>58)
	}
	return string(name)
}

// Open refuses a schema of another program and of a later version, and a database whose names are no UTF-8. It takes a schema that lacks tables.
func TestOpen(t *testing.T) {
	t.Parallel()
	server := emulator.NewPostgres(t)
	conn, err := pgx.Connect(t.Context(), server.URL)
	if err == nil {
		_, err = conn.Exec(t.Context(), "create database bytes encoding 'SQL_ASCII' template template0")
		_ = conn.Close(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := openWith(strings.Replace(server.URL, "/postgres?", "/bytes?", 1)+"&schema=s", enginetest.Kinds(), Options{Create: true}); !errors.Is(err, engine.ErrDeployment) {
		t.Errorf("a database of bytes: got %v, want ErrDeployment", err)
	}
	url := schema(t)
	old := open(t, url, enginetest.Kinds()[:3])
	if e := open(t, url, enginetest.Kinds()); e.identity != old.identity || e.identity == "" {
		t.Errorf("the identity is %q, and was %q", e.identity, old.identity)
	}
	other := open(t, schema(t), nil)
	for _, tt := range []struct {
		sql string
		url string
	}{
		{"update " + old.meta + " set format = 99", url},
		{"drop table " + old.meta, url},
	} {
		if _, err := other.pool.Exec(t.Context(), tt.sql); err != nil {
			t.Fatal(err)
		}
		if e, err := openWith(tt.url, enginetest.Kinds(), Options{Create: true}); !errors.Is(err, engine.ErrDeployment) {
			t.Errorf("after %q: got %v and %v, want ErrDeployment", tt.sql, e, err)
		}
	}
}

// Kinds have no more columns than the mask of a change has bits, and open fields are sums that do not expire.
func TestKinds(t *testing.T) {
	t.Parallel()
	for _, kinds := range []engine.Kinds{protocol.Kinds, enginetest.Kinds()} {
		for i, table := range tables("s", kinds) {
			if k := &kinds[i]; len(table.columns) > 31 || table.side != nil && (k.Class != engine.Sums || k.Expires) {
				t.Errorf("the kind %s has %d columns", k.Name, len(table.columns))
			}
		}
	}
}

// A view that is open for too long ends, and gives its connection back.
func TestViewsEnd(t *testing.T) {
	t.Parallel()
	e, err := openWith(schema(t), enginetest.Kinds(), Options{ViewTime: 300 * time.Millisecond, Create: true})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for range cap(e.views) + 1 { // one more than there are connections for
		v := e.View()
		defer v.Close()
		for err = error(nil); err == nil; {
			_, err = v.Get(ctx, nil)
		}
		if !errors.Is(err, engine.ErrExpired) {
			t.Fatalf("got %v, want ErrExpired", err)
		}
	}
}

// Views have the order of their snapshots, whatever the times of their BEGINs are.
func TestMoments(t *testing.T) {
	t.Parallel()
	var m moments
	for i, step := range []struct {
		at, shown int64
		force     bool
		want      int64
	}{
		{10, 5, false, 10}, {9, 5, false, 10}, {12, 5, false, 12}, {11, 6, false, 13}, {20, 5, false, 0}, {20, 7, false, 20}, {5, 1, true, 21},
	} {
		if got, ok := m.give(step.at, step.shown, step.force); got != step.want || ok != (step.want > 0) {
			t.Errorf("step %d: the moment is %d (%t), want %d", i, got, ok, step.want)
		}
	}
}

// A check ends although its caller sets no limit and the one before it does not end. Its error says what it has waited for.
func TestChecksEnd(t *testing.T) {
	t.Parallel()
	url := schema(t)
	synctest.Test(t, func(t *testing.T) {
		e := open(t, url, nil)
		e.checks <- struct{}{}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if _, err := e.Check(ctx, nil); ctx.Err() != nil || !errors.Is(err, engine.ErrNotApplied) || !strings.Contains(err.Error(), "all places for checks are in use") {
			t.Errorf("got %v (%v), want ErrNotApplied within an hour", err, ctx.Err())
		}
	})
}

// Neither scans nor all views together hold up a check, and scans hold up no look-up.
func TestViewsLeaveRoom(t *testing.T) {
	t.Parallel()
	e, err := openWith(schema(t), enginetest.Kinds(), Options{ViewTime: time.Hour, Create: true})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	scan := func(ctx context.Context) (engine.View, error) {
		v := e.View()
		t.Cleanup(v.Close)
		rows := v.Scan(ctx, engine.Range{Kind: record})
		rows.Next()
		return v, rows.Err()
	}
	check := func(beside string) {
		t.Helper()
		if _, err := e.Check(ctx, []engine.Key{{Kind: record, Name: "a"}}); err != nil {
			t.Errorf("a check beside %s: %v", beside, err)
		}
	}
	var last engine.View
	for range cap(e.scans) {
		if last, err = scan(ctx); err != nil {
			t.Fatal(err)
		}
	}
	soon, stop := context.WithTimeout(ctx, 100*time.Millisecond)
	defer stop()
	if _, err := scan(soon); !errors.Is(err, engine.ErrNotApplied) {
		t.Errorf("one scan too many: got %v, want ErrNotApplied", err)
	}
	check("scans")
	if cap(e.scans) >= cap(e.views) {
		t.Error("scans may have all views")
	}
	for range cap(e.views) - cap(e.scans) {
		v := e.View()
		defer v.Close()
		if _, err := v.Get(ctx, []engine.Key{{Kind: record, Name: "a"}}); err != nil {
			t.Errorf("a look-up beside scans: %v", err)
		}
	}
	check("views")
	last.Close()
	if _, err := scan(ctx); err != nil {
		t.Errorf("a scan after the end of another: %v", err)
	}
}
