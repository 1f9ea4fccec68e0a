package postgres_test

import (
	"crypto/rand"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/countmill/countmill/backend"
	"github.com/countmill/countmill/backend/postgres"
	"github.com/countmill/countmill/internal/testing/emulator"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/storetest"
)

var _ backend.Sweeper = (*postgres.Store)(nil)

func TestMain(m *testing.M) { goleak.VerifyTestMain(emulator.Around(m)) }

// schema returns the URL of a schema of its own.
func schema(t testing.TB) string {
	t.Helper()
	return emulator.Postgres(t) + "&pool_max_conns=8&schema=test_" + strings.ToLower(rand.Text())
}

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
	storetest.RunStore(t, func(t *testing.T) store.Store { return open(t, postgres.Config{URL: schema(t)}) },
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
