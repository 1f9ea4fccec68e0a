package e2e

import (
	"fmt"
	mathrand "math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/countmill/countmill/internal/testing/emulator"
	"github.com/countmill/countmill/internal/testing/longtest"
)

// Three `countmill up` share a database, with no broker between them. They are killed, and PostgreSQL crashes, again and again under
// load. Each acknowledged increment is in the next total of every process and in all later ones, once.
func TestKillsOnPostgreSQL(t *testing.T) {
	t.Parallel()
	longtest.Only(t, "kills countmill for many seconds")
	server := emulator.NewPostgres(t, "wal_writer_delay = '10s'") // a crash takes what no commit has written
	ups := make([]*member, 3)
	for i := range ups {
		ups[i] = keep(t, nil, "up", "--store", server.URL, "--create")
	}
	ready := func() bool {
		for _, up := range ups {
			if !up.ready() {
				return false
			}
		}
		return true
	}
	until(t, time.Minute, "all countmill up to be ready", ready)
	seed := seed(t)
	k := &kills{
		t: t, rand: mathrand.New(mathrand.NewPCG(seed, 1<<34)), ledger: newLedger("kills", true), up: ups[0], parent: os.Getppid(),
	}
	k.callers = startCallers(t, k.ledger, seed, ups, ups, 20*time.Millisecond)
	began, crashes := time.Now(), 0
	const struck = 12
	for n := range struck {
		<-time.After(time.Duration(k.rand.IntN(400)) * time.Millisecond)
		before := now()
		if n%3 == 2 {
			server.Crash()
			if err := server.Start(); err != nil {
				t.Fatal(err)
			}
			crashes++
		} else {
			ups[k.rand.IntN(len(ups))].kill()
		}
		k.counting(fmt.Sprintf("%d kills", n+1), before)
		until(t, time.Minute, "all countmill up to be ready again", ready)
		k.ledger.check(false)
	}
	k.report(time.Since(began), [2]string{"kills", strconv.Itoa(struck - crashes)}, [2]string{"crashes of PostgreSQL", strconv.Itoa(crashes)})
	for _, up := range ups[1:] {
		up.mu.Lock()
		if len(up.ends)+len(up.early) > 0 {
			t.Errorf("ended by itself: %q, and before it listened %q", up.ends, up.early)
		}
		up.mu.Unlock()
	}
}
