package rows

import (
	"context"
	"testing"
	"time"

	"github.com/countmill/countmill/internal/testing/emulator"
	"github.com/countmill/countmill/store/engine"
	"github.com/countmill/countmill/store/engine/enginetest"
)

// PgBouncer reports a lost server by an error of its own. A commit under way is then maybe applied.
func TestPoolerLosesServer(t *testing.T) {
	t.Parallel()
	server := emulator.NewPostgres(t)
	e := open(t, emulator.Bouncer(t, server.URL)+"&schema=s", enginetest.Kinds())
	direct := open(t, server.URL+"&schema=s", enginetest.Kinds())
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	held, err := direct.Pool().Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer held.Rollback(context.Background())
	if _, err := held.Exec(ctx, "lock table "+direct.tables[record].name); err != nil {
		t.Fatal(err)
	}
	under := make(chan error, 1)
	go func() {
		_, err := e.Commit(ctx, add("a", engine.Field{ID: tally, Value: engine.IntOf(1)}))
		under <- err
	}()
	for waiting := 0; waiting == 0; {
		if err := direct.Pool().QueryRow(ctx, "select count(*) from pg_locks where not granted").Scan(&waiting); err != nil {
			t.Fatal(err)
		}
	}
	server.Crash()
	if err := <-under; err == nil || certain(err) {
		t.Errorf("got %v, want an open outcome", err)
	}
}

// The server learns within a minute that a machine is gone which has sent a part of a commit.
func TestLossIsNoticed(t *testing.T) {
	t.Parallel()
	e := open(t, schema(t), enginetest.Kinds())
	u, seconds := e.begin(new(batch)), int64(0)
	u.want(nil, func(v [][]byte) error { seconds = int64Of(v[0]); return nil },
		"select current_setting('tcp_keepalives_idle')::bigint + current_setting('tcp_keepalives_interval')::bigint * current_setting('tcp_keepalives_count')::bigint")
	if _, err := u.apply(t.Context()); err != nil || seconds != 60 {
		t.Errorf("%d s, %v, want 60 s", seconds, err)
	}
}
