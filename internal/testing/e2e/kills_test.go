package e2e

import (
	"fmt"
	mathrand "math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/countmill/countmill/internal/testing/child"
)

// `countmill up` is killed again and again under load. Each acknowledged increment is in the next total
// and in every later one, once. Some kills hit a process that is just starting.
//
// COUNTMILL_TEST_UP_KILLS is how often it is killed (20), COUNTMILL_TEST_SEED decides when.
func TestKills(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("builds countmill and kills it for many seconds")
	}
	kills := timesOf(t, "COUNTMILL_TEST_UP_KILLS", 20)
	k := newKills(t, seed(t))
	began := time.Now()
	for n := 1; n <= kills; n++ {
		k.kill(n)
		if n%20 == 0 || n == kills {
			k.ledger.check(false)
			t.Logf("%s: %d kills, %+v, %d totals read", time.Since(began).Round(time.Second), n, k.callers.counted(), k.ledger.shown())
		}
	}
	k.report(time.Since(began), [2]string{"kills", strconv.Itoa(kills + k.starts)},
		[2]string{"of them right after the one before, while it started", strconv.Itoa(k.starts)})
}

type kills struct {
	t       *testing.T
	rand    *mathrand.Rand
	ledger  *ledger
	callers *callers
	up      *member
	parent  int
	starts  int // kills of a process that was not ready
	took    []time.Duration
}

func newKills(t *testing.T, seed uint64) *kills {
	t.Helper()
	dir := t.TempDir()
	g, err := child.GuardDirs(filepath.Dir(dir)) // the directory of TempDir with all its content
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.End)
	k := &kills{
		t: t, rand: mathrand.New(mathrand.NewPCG(seed, 1<<33)), ledger: newLedger("kills", true),
		up: keep(t, nil, "up", "--data", dir), parent: os.Getppid(),
	}
	until(t, time.Minute, "countmill up to be ready", k.up.ready)
	k.callers = startCallers(t, k.ledger, seed, []*member{k.up}, []*member{k.up}, 10*time.Millisecond)
	return k
}

// kill kills at a random moment, and waits until an increment is acknowledged that was sent after that.
func (k *kills) kill(n int) {
	k.t.Helper()
	<-time.After(time.Duration(k.rand.IntN(400)) * time.Millisecond)
	before := now()
	k.up.kill()
	if k.rand.IntN(8) == 0 {
		<-time.After(time.Duration(k.rand.IntN(60)) * time.Millisecond)
		k.up.kill()
		k.starts++
	}
	k.counting(fmt.Sprintf("%d kills", n), before)
}

// counting waits until an increment is acknowledged that was sent after then, and records how long that
// took.
func (k *kills) counting(what string, then time.Duration) {
	k.t.Helper()
	began := time.Now()
	until(k.t, time.Minute, "an increment to be acknowledged", func() bool {
		if err := k.ledger.problems(); err != nil {
			k.t.Fatalf("after %s: %v", what, err)
		}
		return k.ledger.acknowledged() > then || os.Getppid() != k.parent
	})
	if os.Getppid() != k.parent {
		k.t.Fatal("what had started the tests is gone")
	}
	k.took = append(k.took, time.Since(began))
}

// report compares every total with the ledger and prints a summary, which begins with struck. No process may have ended by itself.
func (k *kills) report(length time.Duration, struck ...[2]string) {
	t := k.t
	t.Helper()
	k.callers.settle(t)
	k.callers.report(t, length, k.took, struck...)
	for _, up := range k.callers.readers {
		up.mu.Lock()
		if len(up.ends)+len(up.early) > 0 {
			t.Errorf("ended by itself: %q, and before it listened %q", up.ends, up.early)
		}
		up.mu.Unlock()
	}
}
