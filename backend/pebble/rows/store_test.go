package rows

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/countmill/countmill/backend/pebble"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/protocol"
	"github.com/countmill/countmill/store/storetest"
)

type clocked struct {
	*protocol.Store
	dir string
	off *atomic.Int64
}

func openStore(t *testing.T, dir string, off *atomic.Int64) clocked {
	t.Helper()
	clock := func() time.Time { return time.Now().Add(time.Duration(off.Load())) }
	return openProtocol(t, dir, off, protocol.Config{Clock: clock})
}

func openProtocol(t *testing.T, dir string, off *atomic.Int64, cfg protocol.Config) clocked {
	e, err := Open(pebble.Config{Dir: dir, Namespace: "conformance"}, protocol.Kinds)
	if err != nil {
		t.Fatal(err)
	}
	s, err := protocol.Open(t.Context(), e, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return clocked{s, dir, off}
}

func TestStore(t *testing.T) {
	t.Parallel()
	storetest.RunStore(t,
		func(t *testing.T) store.Store { return openStore(t, t.TempDir(), new(atomic.Int64)) },
		storetest.Clock(func(s store.Store, off time.Duration) { s.(clocked).off.Store(int64(off)) }),
		storetest.Durable(func(t *testing.T, s store.Store) store.Store {
			if err := s.Close(); err != nil {
				t.Fatalf("Close: %v", err)
			}
			return openStore(t, s.(clocked).dir, s.(clocked).off)
		}),
		storetest.RemovesByForgetBefore(func(t *testing.T, m *storetest.Machine) store.Store {
			return openProtocol(t, t.TempDir(), nil, protocol.Config{Clock: m.Now, Age: m.Age})
		}, func(t *testing.T, s store.Store) {
			t.Helper()
			if err := s.(clocked).Sweep(t.Context()); err != nil {
				t.Fatalf("Sweep: %v", err)
			}
		}))
}
