package rows

import (
	"context"
	"crypto/rand"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/goleak"

	"github.com/countmill/countmill/internal/testing/emulator"
	"github.com/countmill/countmill/store/engine"
	"github.com/countmill/countmill/store/engine/enginetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(emulator.Around(m)) }

// schema returns the URL of a schema of its own.
func schema(t testing.TB) string {
	t.Helper()
	return emulator.Postgres(t) + "&pool_max_conns=24&schema=test_" + strings.ToLower(rand.Text())
}

// openWith opens the schema of a URL, which is its last parameter.
func openWith(url string, kinds engine.Kinds, options Options) (*Engine, error) {
	address, schema, _ := strings.Cut(url, "&schema=")
	schema, more, _ := strings.Cut(schema, "&")
	config, err := pgxpool.ParseConfig(address + "&" + more)
	if err != nil {
		return nil, err
	}
	return Open(context.Background(), config, schema, kinds, options)
}

func open(t testing.TB, url string, kinds engine.Kinds) *Engine {
	t.Helper()
	e, err := openWith(url, kinds, Options{Create: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	return e
}

func TestEngine(t *testing.T) {
	t.Parallel()
	enginetest.Run(t, func(t *testing.T, kinds engine.Kinds) *enginetest.Under {
		url := schema(t)
		u := &enginetest.Under{Engine: open(t, url, kinds), Rounds: 40}
		u.Reopen = func(t *testing.T) engine.Engine {
			if err := u.Engine.Close(); err != nil {
				t.Error(err)
			}
			return open(t, url, kinds)
		}
		u.Another = func(t *testing.T) engine.Engine { return open(t, url, kinds) }
		return u
	})
}
