package postgres_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/countmill/countmill/backend"
	"github.com/countmill/countmill/backend/postgres"
	"github.com/countmill/countmill/internal/testing/emulator"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/engine"
	"github.com/countmill/countmill/store/storetest"
)

var _ backend.Sweeper = (*postgres.Store)(nil)

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
	storetest.RunStore(t, func(t *testing.T) store.Store { return open(t, postgres.Config{URL: emulator.PostgresSchema(t)}) },
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
	if _, err := postgres.Open(t.Context(), postgres.Config{URL: owner}); !errors.Is(err, engine.ErrDeployment) {
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
}
