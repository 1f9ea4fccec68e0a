package pebble

import (
	"testing"

	"github.com/countmill/countmill/backend/backendtest"
)

func open(t *testing.T, cfg Config) *Store {
	t.Helper()
	s, err := Open(cfg)
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return s
}

func TestStore(t *testing.T) {
	t.Parallel()
	backendtest.RunStore(t,
		func(t *testing.T) backendtest.Store {
			return open(t, Config{Dir: t.TempDir(), Namespace: "conformance"})
		},
		backendtest.Durable(func(t *testing.T, s backendtest.Store) backendtest.Store {
			if err := s.Close(); err != nil {
				t.Fatalf("Close: %v", err)
			}
			return open(t, s.(*Store).cfg)
		}))
}
