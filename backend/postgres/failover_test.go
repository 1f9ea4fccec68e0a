package postgres_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	osexec "os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/countmill/countmill/backend/postgres"
	"github.com/countmill/countmill/internal/testing/emulator"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/wire"
)

// A standby that was promoted may lack values of sequences. A process that stays connected gives none before it has checked the
// server, and then leaves 2^20 out. So does a process that opens the database later, once.
func TestFailover(t *testing.T) {
	t.Parallel()
	primary := emulator.NewPostgres(t)
	s := open(t, postgres.Config{URL: primary.URL})
	if _, err := s.Fold(t.Context(), &store.Commit{Adds: []store.ShardDelta{store.NewShardDelta("a", 0, 5)}, Rules: store.AnyRules}); err != nil {
		t.Fatal(err)
	}
	standby := primary.Standby(t)
	// It may lack increments that are in a total of its moment.
	if _, err := postgres.Open(t.Context(), postgres.Config{URL: standby.URL, ReadOnly: true}); err == nil || !strings.Contains(err.Error(), "a standby") {
		t.Errorf("a standby is opened: %v", err)
	}

	first, second := host(t, primary.URL), host(t, standby.URL)
	both := open(t, postgres.Config{URL: "postgres://postgres@" + first + "," + second + "/postgres?sslmode=disable&target_session_attrs=read-write"})
	if got, err := next(t, both, 1); err != nil || got != 1 {
		t.Fatalf("the first value is %d, %v", got, err)
	}
	primary.Crash()
	conn, err := pgx.Connect(t.Context(), standby.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	if _, err := conn.Exec(t.Context(), "select pg_promote()"); err != nil {
		t.Fatal(err)
	}
	// Connections of the old server end one by one. A statement on the new one is refused by its condition, a division.
	deadline := time.Now().Add(2 * time.Minute)
	for id := 2; err == nil || !strings.Contains(err.Error(), "22012"); id++ {
		var got int64
		if got, err = next(t, both, id); err == nil || time.Now().After(deadline) {
			t.Fatalf("a value before a check: %d, %v", got, err)
		}
	}
	if !errors.Is(err, store.ErrNotApplied) {
		t.Errorf("before a check: %v, want ErrNotApplied", err)
	}
	for time.Now().Before(deadline) {
		if _, err = both.Check(t.Context()); err == nil {
			break
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	const skipped = 1<<20 + 2
	if got, err := next(t, both, 1_000_000); err != nil || got < skipped-1 || got > skipped {
		t.Errorf("the next value is %d, %v, want about %d", got, err, skipped)
	}
	later := open(t, postgres.Config{URL: standby.URL})
	if got, err := next(t, later, 1_000_001); err != nil || got > skipped+1 {
		t.Errorf("another process gives %d, %v: it leaves values out again", got, err)
	}
	page, err := later.ShardsOf(t.Context(), "a")
	if err != nil || len(page.Shards) != 1 {
		t.Errorf("the shards are %+v, %v", page, err)
	}
}

// A commit waits for its standby, and that wait is cancelled: its outcome is open, and its rows show. A repeat is not acknowledged before the standby
// has them.
func TestCancelledWait(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithTimeout(t.Context(), 2*time.Minute)
	defer stop()
	server := emulator.NewPostgres(t)
	s, other := open(t, postgres.Config{URL: server.URL}), open(t, postgres.Config{URL: server.URL})
	session := newSession(t, server.URL)
	session.do("alter system set synchronous_standby_names = 'absent'", "select pg_reload_conf()")
	marker := store.Marker{ID: wire.IncrementID("a", "1"), Fold: 7, At: time.Now(), ExpireAt: time.Now().Add(time.Hour)}
	probe := newSession(t, server.URL)
	calls := map[string]func(s store.Store) error{
		"a fold": func(s store.Store) error {
			_, err := s.Fold(ctx, &store.Commit{Adds: []store.ShardDelta{store.NewShardDelta("a", 0, 5)}, Markers: []store.Marker{marker}, Rules: store.AnyRules})
			return err
		},
		"a value": func(s store.Store) error {
			_, err := next(t, s, 1)
			return err
		},
		"a look-up": func(s store.Store) error {
			_, err := s.Applied(ctx, []wire.PartID{marker.ID})
			return err
		},
	}
	waits := func() (n int) {
		if err := session.QueryRow(ctx, "select count(*) from pg_stat_activity where wait_event = 'SyncRep'").Scan(&n); err != nil {
			t.Error(err)
		}
		return n
	}
	// begin wants that a call waits for the standby.
	begin := func(name string, s store.Store) (ended chan error) {
		t.Helper()
		ended = make(chan error, 1)
		go func() { ended <- calls[name](s) }()
		for {
			select {
			case err := <-ended:
				t.Fatalf("%s does not wait for the standby: %v", name, err)
			default:
			}
			if waits() > 0 {
				return ended
			}
		}
	}
	cancel := func() { session.do("select pg_cancel_backend(pid) from pg_stat_activity where wait_event = 'SyncRep'") }
	// The server reads its file when it has time: until then commits wait for nobody.
	probing, end := context.WithCancel(ctx)
	probed := make(chan struct{})
	go func() {
		defer close(probed)
		for probing.Err() == nil {
			_, _ = probe.Exec(ctx, "select pg_logical_emit_message(true, 'probe', '')")
		}
	}()
	for waits() == 0 && !t.Failed() {
	}
	end()
	cancel()
	<-probed
	for _, name := range []string{"a fold", "a value"} {
		ended := begin(name, s)
		cancel()
		if err := <-ended; err == nil || errors.Is(err, store.ErrNotApplied) || errors.Is(err, store.ErrMarkerExists) {
			t.Errorf("%s whose wait is cancelled: got %v, want an error of an unknown outcome", name, err)
		}
	}
	for _, name := range []string{"a fold", "a value", "a look-up"} {
		ended := begin(name, other)
		cancel()
		if err := <-ended; err == nil || errors.Is(err, store.ErrMarkerExists) {
			t.Errorf("the repeat of %s, whose wait is cancelled: got %v, want an error of an unknown outcome", name, err)
		}
	}
	begun := 0
	repeat := func(done func(err error) bool) {
		t.Helper()
		for {
			begun++
			call, end := context.WithTimeout(ctx, time.Second)
			_, err := s.Fold(call, &store.Commit{Adds: []store.ShardDelta{store.NewShardDelta(fmt.Sprint(begun), 0, 5)}, Rules: store.AnyRules})
			if end(); done(err) {
				return
			}
			if ctx.Err() != nil {
				t.Fatal(err)
			}
		}
	}
	repeat(func(err error) bool {
		return errors.Is(err, store.ErrNotApplied) && strings.Contains(err.Error(), "commits wait for a standby")
	})
	if n := waits(); n < 4 {
		t.Errorf("%d commits wait, want 4 or more", n)
	}
	session.do("alter system reset synchronous_standby_names", "select pg_reload_conf()")
	repeat(func(err error) bool { return err == nil && waits() == 0 })
	if err := calls["a fold"](other); !errors.Is(err, store.ErrMarkerExists) {
		t.Errorf("the fold again: got %v, want ErrMarkerExists", err)
	}
	if got, err := next(t, other, 1); err != nil || got != 1 {
		t.Errorf("the value again: got %d, %v, want 1", got, err)
	}
}

func host(t *testing.T, address string) string {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	return u.Host
}

// next takes a value.
func next(t *testing.T, s store.Store, id int) (int64, error) {
	t.Helper()
	part := wire.SequenceID("orders", strconv.Itoa(id))
	given, err := s.NextValues(t.Context(), "orders", []store.Take{{ID: part, Count: 1, At: time.Now(), ExpireAt: time.Now().Add(time.Hour)}})
	if err != nil {
		return 0, err
	}
	return given[0].First, nil
}

// A server that does not answer, the first of two, keeps nobody from the second.
func TestFirstServerHangs(t *testing.T) {
	t.Parallel()
	hangs, err := net.Listen("tcp", "127.0.0.1:0") // the kernel accepts, and nobody answers
	if err != nil {
		t.Fatal(err)
	}
	defer hangs.Close()
	made := emulator.PostgresSchema(t)
	open(t, postgres.Config{URL: made})
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	s, err := postgres.Open(ctx, postgres.Config{URL: strings.Replace(made, host(t, made), hangs.Addr().String()+","+host(t, made), 1)})
	if err != nil {
		t.Fatal(err)
	}
	_ = s.Close()
}

// A dump that is restored on the same server counts as another server, also for a process that stays connected: it may lack values of
// sequences, and records of counters.
func TestRestoredDump(t *testing.T) {
	t.Parallel()
	c := postgres.Config{URL: emulator.PostgresSchema(t)}
	s := open(t, c)
	schema := schemaOf(t, c.URL)
	server, _, _ := strings.Cut(c.URL, "&")
	if got, err := next(t, s, 1); err != nil || got != 1 {
		t.Fatalf("the first value is %d, %v", got, err)
	}
	dump, err := osexec.Command("pg_dump", "--schema="+schema, server).Output()
	if err != nil {
		t.Skipf("no dump: %v", err)
	}
	if got, err := next(t, s, 2); err != nil || got != 2 {
		t.Fatalf("the second value is %d, %v", got, err)
	}
	newSession(t, server).do("drop schema " + schema + " cascade")
	psql := osexec.Command("psql", "-q", "-v", "ON_ERROR_STOP=1", server)
	psql.Stdin = bytes.NewReader(dump)
	if out, err := psql.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}

	if got, err := next(t, s, 3); !errors.Is(err, store.ErrNotApplied) {
		t.Errorf("a value before a check: %d, %v, want ErrNotApplied", got, err)
	}
	fold := &store.Commit{Adds: []store.ShardDelta{store.NewShardDelta("a", 0, 5)}, Rules: 1}
	if _, err := s.Fold(t.Context(), fold); !errors.Is(err, store.ErrOutdated) {
		t.Errorf("a fold before a check: %v, want ErrOutdated", err)
	}
	checked, err := s.Check(t.Context())
	if err != nil || checked.Settings.Restores != 1 {
		t.Fatalf("the check: %d restores, %v, want 1", checked.Settings.Restores, err)
	}
	if _, err := s.Check(t.Context()); err != nil || time.Since(s.Restored()).Abs() > time.Hour {
		t.Errorf("restored at %s, %v, want now", s.Restored(), err)
	}
	if _, err := s.Fold(t.Context(), fold); !errors.Is(err, store.ErrOutdated) {
		t.Errorf("a fold that rests on reads before the restore: %v, want ErrOutdated", err)
	}
	if fold.Restores++; err == nil {
		_, err = s.Fold(t.Context(), fold)
	}
	if got, nextErr := next(t, s, 3); err != nil || nextErr != nil || got != 1+1<<20+1 {
		t.Errorf("after the check a fold: %v, and a value: %d, %v, want %d", err, got, nextErr, 1+1<<20+1)
	}
}
