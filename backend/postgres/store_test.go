package postgres_test

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"github.com/countmill/countmill/backend/postgres"
	"github.com/countmill/countmill/internal/testing/emulator"
	"github.com/countmill/countmill/internal/testing/longtest"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/engine"
	"github.com/countmill/countmill/store/int128"
	"github.com/countmill/countmill/store/storetest"
	"github.com/countmill/countmill/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(emulator.Around(m)) }

func open(t testing.TB, c postgres.Config) opened {
	t.Helper()
	c.Create = true
	s, err := postgres.Open(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return opened{s, c}
}

// opened can be opened again.
type opened struct {
	*postgres.Store
	config postgres.Config
}

func TestStore(t *testing.T) {
	t.Parallel()
	testStore(t, func(url string) string { return url })
}

// PgBouncer in transaction mode gives each transaction another session of the server.
func TestStoreThroughPgBouncer(t *testing.T) {
	longtest.Only(t, "it repeats TestStore through another server")
	t.Parallel()
	bouncer := emulator.Bouncer(t, emulator.Postgres(t))
	testStore(t, func(address string) string {
		return strings.Split(bouncer, "?")[0] + "?" + strings.Split(address, "?")[1]
	})
}

func testStore(t *testing.T, through func(url string) string) {
	t.Helper()
	storetest.RunStore(t, func(t *testing.T) store.Store {
		return open(t, postgres.Config{URL: through(emulator.PostgresSchema(t))})
	},
		storetest.OfEngine(),
		storetest.Durable(func(t *testing.T, s store.Store) store.Store {
			if err := s.Close(); err != nil {
				t.Errorf("Close: %v", err)
			}
			return open(t, s.(opened).config)
		}),
		storetest.Shared(func(t *testing.T, s store.Store, window time.Duration) store.Store {
			c := s.(opened).config
			c.Window = window
			return open(t, c)
		}))
}

// Only a process that may create makes the tables, as a role that owns nothing but the schema. A role that may only read
// opens them.
func TestOpen(t *testing.T) {
	t.Parallel()
	made := emulator.PostgresSchema(t)
	name := schemaOf(t, made)
	bare := strings.Trim(name, `"`)
	owner, reader := role(t, made, "owner_"+bare), role(t, made, "reader_"+bare)
	for what, c := range map[string]postgres.Config{
		"without leave":       {URL: made},
		"for reading":         {URL: made, ReadOnly: true},
		"a role without them": {URL: reader, Create: true},
	} {
		if _, err := postgres.Open(t.Context(), c); !errors.Is(err, engine.ErrDeployment) {
			t.Errorf("%s: got %v, want ErrDeployment", what, err)
		}
	}
	exec(t, "create schema "+name+" authorization owner_"+bare)
	if _, err := postgres.Open(t.Context(), postgres.Config{URL: owner}); !errors.Is(err, engine.ErrDeployment) || !strings.Contains(err.Error(), "has no tables") {
		t.Errorf("an empty schema: got %v, want ErrDeployment", err)
	}
	s := open(t, postgres.Config{URL: owner})
	if _, err := s.Fold(t.Context(), &store.Commit{Adds: []store.ShardDelta{{Counter: "a", Delta: 5}}, Growths: []store.Growth{{Counter: "a", Shards: 1}}}); err != nil {
		t.Fatal(err)
	}
	exec(t, "grant usage on schema "+name+" to reader_"+bare, "grant select on all tables in schema "+name+" to reader_"+bare)
	r, err := postgres.Open(t.Context(), postgres.Config{URL: reader, ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if r.ID() != s.ID() || r.ID() == "" {
		t.Errorf("the ids are %q and %q", r.ID(), s.ID())
	}
	if shards, err := r.Shards(t.Context(), []string{"a"}); err != nil || shards[0] != 1 {
		t.Errorf("a reader: got %v, %v", shards, err)
	}
	if _, err := r.Fold(t.Context(), &store.Commit{Adds: []store.ShardDelta{{Counter: "a", Delta: 5}}}); !errors.Is(err, store.ErrDeployment) {
		t.Errorf("a fold by a reader: got %v, want ErrDeployment", err)
	}
	exec(t, "revoke select on "+name+".journal from reader_"+bare)
	v := r.JournalView()
	defer v.Close()
	if _, err := v.Lookup(t.Context(), []store.Key{{Counter: "a", Shard: store.RecordKey}}); err != nil {
		t.Error(err)
	}
	if _, err := v.JournalRecords(t.Context(), store.JournalQuery{Limit: 1}); !errors.Is(err, store.ErrDeployment) || errors.Is(err, engine.ErrExpired) {
		t.Errorf("the journal without a right: got %v, want ErrDeployment", err)
	}
	for _, call := range []string{"add('a')", "add('a', 1, 'id')", "adopt('id')"} {
		if _, err := newSession(t, strings.Replace(emulator.Postgres(t), "postgres@", "reader_"+bare+"@", 1)).Exec(t.Context(), "begin isolation level repeatable read; select "+name+"."+call); err == nil || !strings.Contains(err.Error(), "permission denied for function") {
			t.Errorf("%s by a reader: %v", call, err)
		}
	}
}

// TLS follows the parameters of libpq: the store opens on a server that it can verify, and on no other.
func TestTLS(t *testing.T) {
	t.Parallel()
	web := httptest.NewTLSServer(nil) // for its certificate of 127.0.0.1
	web.Close()
	key, err := x509.MarshalPKCS8PrivateKey(web.TLS.Certificates[0].PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	cert, root := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: web.Certificate().Raw}), filepath.Join(t.TempDir(), "root")
	if err := os.WriteFile(root, cert, 0o600); err != nil {
		t.Fatal(err)
	}
	server := emulator.NewPostgres(t)
	for file, text := range map[string][]byte{"server.crt": cert, "server.key": pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key})} {
		newSession(t, server.URL).do(fmt.Sprintf(`copy (select regexp_split_to_table('%s', '\n')) to program 'umask 077 && cat > %s'`, text, file))
	}
	if err := errors.Join(server.Set("ssl = on"), server.Start()); err != nil {
		t.Fatal(err)
	}
	verified := strings.Replace(server.URL, "sslmode=disable", "sslmode=verify-full", 1)
	if _, err := postgres.Open(t.Context(), postgres.Config{URL: verified, Create: true}); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("a server with a certificate of nobody: %v", err)
	}
	s := open(t, postgres.Config{URL: verified + "&sslrootcert=" + root})
	var encrypted int
	err = newSession(t, server.URL).QueryRow(t.Context(), "select count(*) from pg_stat_ssl where ssl").Scan(&encrypted)
	if _, checkErr := s.Check(t.Context()); err != nil || checkErr != nil || encrypted == 0 {
		t.Errorf("%d connections have TLS, %v, %v", encrypted, err, checkErr)
	}
}

// Other roles may make operators in a schema on the search path. None of them is called by the role of countmill.
func TestOperatorsOfStrangers(t *testing.T) {
	t.Parallel()
	made := emulator.PostgresSchema(t)
	name := schemaOf(t, made)
	bare := strings.Trim(name, `"`)
	owner := role(t, made, "owner_"+bare)
	evil := "stranger_" + bare
	role(t, made, evil)
	exec(t, "create schema "+name+" authorization owner_"+bare, "create schema authorization "+evil, "grant usage on schema "+evil+" to public", fmt.Sprintf("alter role owner_%s set search_path = %s", bare, evil))
	for i, o := range []string{"||, bigint, text", "||, text, bigint", "||, text, oid", "||, text, name", "&, bigint, integer", "=, oid, regnamespace"} {
		p := strings.Split(o, ", ")
		exec(t, fmt.Sprintf("create function %s.f%d(%s, %s) returns %s language plpgsql as 'begin raise ''called''; end'", evil, i, p[1], p[2], map[string]string{"||": "text", "&": "bigint", "=": "boolean"}[p[0]]),
			fmt.Sprintf("create operator %s.%s (leftarg = %s, rightarg = %s, function = %[1]s.f%[5]d)", evil, p[0], p[1], p[2], i))
	}
	s := open(t, postgres.Config{URL: owner})
	if _, err := s.Check(t.Context()); err != nil {
		t.Error(err)
	}
	day := wire.MinuteOf(time.Now())
	if _, err := s.Fold(t.Context(), &store.Commit{
		Adds: []store.ShardDelta{store.NewShardDelta("a", 0, 5)}, Growths: []store.Growth{{Counter: "a", Shards: 1}}, Buckets: []store.BucketDelta{{Minute: day, Delta: 5}},
	}); err != nil {
		t.Error(err)
	}
	v := s.View()
	defer v.Close()
	if _, err := v.Series(t.Context(), []store.Record{{Counter: "a", Shards: 1}}, day, day+1); err != nil {
		t.Error(err)
	}
	if _, err := s.Added(t.Context(), 10); err != nil {
		t.Error(err)
	}
	if err := s.Sweep(t.Context()); err != nil {
		t.Error(err)
	}
	wantFindings(t, postgres.Exam{Config: postgres.Config{URL: owner}})
}

// A database whose clock is years ahead forgets nothing.
func TestSweepByAWrongClock(t *testing.T) {
	t.Parallel()
	s := open(t, postgres.Config{URL: emulator.PostgresSchema(t)})
	marker := store.Marker{ID: wire.SequenceID("a", "1"), At: time.Now(), ExpireAt: time.Now().Add(-time.Minute)}
	old := wire.MinuteOf(time.Now()) - 3*store.DayMinutes
	if _, err := s.Fold(t.Context(), &store.Commit{
		Markers: []store.Marker{marker}, Rules: store.AnyRules, Adds: []store.ShardDelta{store.NewShardDelta("a", 0, 5)}, Buckets: []store.BucketDelta{{Minute: old, Delta: 5}},
	}); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		off  time.Duration
		left int
	}{{-2 * time.Hour, 1}, {2 * time.Hour, 1}, {time.Minute, 0}} {
		s.SetClock(func() time.Time { return time.Now().Add(tt.off) })
		_, err := s.SweepCounters(t.Context(), store.SweepAfter)
		for _, err := range []error{err, s.Sweep(t.Context()), s.SweepSeries(t.Context())} {
			if (err == nil) != (tt.left == 0) {
				t.Errorf("%s off: a sweep answers %v", tt.off, err)
			}
		}
		v := s.View()
		series, err := v.Series(t.Context(), []store.Record{{Counter: "a", Shards: 1}}, old, old+1)
		v.Close()
		if found, lookErr := s.Applied(t.Context(), []wire.PartID{marker.ID}); len(found) != tt.left || err != nil || len(series[0]) != tt.left || lookErr != nil {
			t.Errorf("%s off: %d markers and %v of a series are left, %v, %v", tt.off, len(found), series, lookErr, err)
		}
	}
}

// A fold that takes what another one has taken, or is about to take, applies nothing and waits for nobody.
func TestTaken(t *testing.T) {
	t.Parallel()
	c := postgres.Config{URL: emulator.PostgresSchema(t)}
	s := open(t, c)
	other := open(t, c)
	name := schemaOf(t, c.URL)
	for range 3 {
		exec(t, "select "+name+".add('a', 5)")
	}
	added, err := s.Added(t.Context(), 2)
	if err != nil || len(added) != 2 || added[0].Counter != "a" || added[0].Delta != 5 || added[0].At.IsZero() {
		t.Fatalf("got %+v, %v, want two increments", added, err)
	}
	take := func(s store.Store, ids ...int64) error {
		_, err := s.Fold(t.Context(), &store.Commit{
			Adds: []store.ShardDelta{store.NewShardDelta("a", 0, 5*int64(len(ids)))}, Taken: ids, Rules: store.AnyRules,
		})
		return err
	}
	conn, err := pgx.Connect(t.Context(), emulator.Postgres(t))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	tx, err := conn.Begin(t.Context())
	if err == nil {
		_, err = tx.Exec(t.Context(), "delete from "+name+".added where id = $1", added[1].ID)
	}
	if err != nil {
		t.Fatal(err)
	}
	first, second := added[0].ID, added[1].ID
	if err := take(s, first, second); !errors.Is(err, store.ErrMarkerExists) {
		t.Errorf("beside another transaction: %v, want ErrMarkerExists", err)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := take(s, first, second); err != nil {
		t.Error(err)
	}
	for _, ids := range [][]int64{{first, second}, {second, second + 1}} {
		if err := take(other, ids...); !errors.Is(err, store.ErrMarkerExists) {
			t.Errorf("taking %d again: %v, want ErrMarkerExists", ids, err)
		}
	}
	if left, err := other.Added(t.Context(), 10); err != nil || len(left) != 1 || left[0].ID != second+1 {
		t.Errorf("left are %+v, %v, want the third", left, err)
	}
	page, err := s.ShardsOf(t.Context(), "a")
	if err != nil || len(page.Shards) != 1 || page.Shards[0].Count != int128.Of(10) {
		t.Errorf("the shards are %+v, %v, want a sum of 10", page, err)
	}
}
