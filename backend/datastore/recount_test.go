package datastore

import (
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/countmill/countmill/internal/testing/emulator"
	"github.com/countmill/countmill/internal/testing/recounttest"
)

// newRig is a rig at an emulator.
func newRig(t *testing.T, host string) *recounttest.Rig {
	t.Helper()
	c := ahead(0)
	s := openStore(t, Config{Project: emulator.Project(), Emulator: host, DialOptions: []grpc.DialOption{c.option()}})
	pass := func(d time.Duration) {
		c.pass(d)
		if d >= time.Second {
			time.Sleep(50 * time.Millisecond) // the emulator shows commits entity by entity
		}
	}
	return recounttest.New(t, s, pass, c.now)
}

// A shard under a key that is not its own is in no sum.
func TestRecountWithAMisplacedShard(t *testing.T) {
	t.Parallel()
	recounttest.Misplaced(t, newRig(t, emulator.Firestore(t)))
}
