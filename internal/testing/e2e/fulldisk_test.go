package e2e

import (
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/countmill/countmill/internal/testing/longtest"
)

// The disk of `countmill up` becomes full again and again under load, and then has room again. A
// process that continues answers 503; a process that ends says why. Each acknowledged increment is in
// the next total and in every later one, once.
//
// COUNTMILL_TEST_FULL_DISKS is how often the disk becomes full (2), COUNTMILL_TEST_SEED decides when.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	longtest.Only(t, "builds countmill and fills its disk for many seconds")
	times := timesOf(t, "COUNTMILL_TEST_FULL_DISKS", 2)
	dir := smallDisk(t, diskSize)
	seed := seed(t)
	r := mathrand.New(mathrand.NewPCG(seed, 1<<34))
	k := &kills{t: t, rand: r, ledger: newLedger("full", true), up: keep(t, nil, "up", "--data", filepath.Join(dir, "data")), parent: os.Getppid()}
	until(t, time.Minute, "countmill up to be ready", k.up.ready)
	k.callers = startCallers(t, k.ledger, seed, []*member{k.up}, []*member{k.up}, 5*time.Millisecond)
	began := time.Now()
	for range times {
		k.fill(filepath.Join(dir, "filler"))
	}
	ended, early := k.saidWhy()
	k.report(time.Since(began), [2]string{"times full", strconv.Itoa(times)}, [2]string{"processes that ended", strconv.Itoa(ended)},
		[2]string{"processes that ended before they listened", strconv.Itoa(early)})
}

// diskSize is small enough to be filled at once, and has room for Pebble's logs.
const diskSize = 400 << 20

// smallDisk returns a directory on a disk of its own, in memory. The disk belongs to the mount
// namespace of a process, and ends with that process.
func smallDisk(t *testing.T, size int) string {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("needs Linux: a file system of its own size in a name space of its own")
	}
	at := t.TempDir()
	script := fmt.Sprintf("mount -t tmpfs -o size=%d none %s && echo mounted && exec cat", size, at)
	holder := exec.Command("unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script)
	in, err := holder.StdinPipe() // closed at the end of the tests, which ends cat
	if err != nil {
		t.Fatal(err)
	}
	said := &logged{}
	holder.Stdout, holder.Stderr = said, said
	if err := holder.Start(); err != nil {
		t.Skipf("no disk of its own size: %v", err)
	}
	t.Cleanup(func() {
		_ = in.Close()
		_ = holder.Wait()
	})
	until(t, 10*time.Second, "a small disk, or why there is none", func() bool { return said.String() != "" })
	if said.String() != "mounted\n" {
		t.Skipf("no disk of its own size: %s", said)
	}
	return fmt.Sprintf("/proc/%d/root%s", holder.Process.Pid, at)
}

// fill fills the disk until a failure shows, and for a second or two more. Then it waits until an
// increment is acknowledged that was sent after there was room again.
func (k *kills) fill(name string) {
	k.t.Helper()
	<-time.After(time.Duration(500+k.rand.IntN(1500)) * time.Millisecond)
	f, err := os.Create(name)
	if err != nil {
		k.t.Fatal(err)
	}
	defer f.Close()
	shown := k.shown()
	end := k.flood()
	defer end()
	k.occupy(f, busy, func() bool { return k.shown() > shown })
	if k.shown() == shown {
		k.t.Errorf("%s on a full disk, and none ended or answered 503", busy)
	}
	k.occupy(f, time.Duration(k.rand.IntN(2000))*time.Millisecond, func() bool { return false })
	end()
	if err := os.Remove(name); err != nil {
		k.t.Fatal(err)
	}
	_ = f.Close()
	k.counting("a full disk", now())
}

// occupy takes all free space, and the space that others release, for a time or until done.
func (k *kills) occupy(f *os.File, limit time.Duration, done func() bool) {
	k.t.Helper()
	for began := time.Now(); time.Since(began) < limit && !done(); {
		_, err := f.Write(make([]byte, 1+k.rand.IntN(64<<10)))
		if err != nil && !errors.Is(err, syscall.ENOSPC) {
			k.t.Fatal(err)
		}
		if err != nil {
			<-time.After(time.Millisecond)
		}
	}
}

// shown counts the failures because of a full disk: ended processes, and answers of 503.
func (k *kills) shown() int {
	k.callers.mu.Lock()
	refused := k.callers.statuses[http.StatusServiceUnavailable]
	k.callers.mu.Unlock()
	k.up.mu.Lock()
	defer k.up.mu.Unlock()
	return refused + len(k.up.ends) + len(k.up.early)
}

// flood counts new names until it is ended. Log files are reserved in advance, so the callers' requests
// alone would not fill them while the disk is full.
func (k *kills) flood() (end func()) {
	stop := make(chan struct{})
	var running sync.WaitGroup
	running.Go(func() {
		filler := strings.Repeat("x", 400)
		for n := 0; ; n++ {
			select {
			case <-stop:
				return
			case <-time.After(10 * time.Millisecond):
			}
			var body strings.Builder
			for i := range 2000 {
				fmt.Fprintf(&body, "{\"counter\":\"flood:%d:%d:%s\"}\n", n, i, filler)
			}
			if p := k.up.up(); p != nil {
				_, _ = send(client, p.url, body.String(), "")
			}
		}
	})
	return sync.OnceFunc(func() { close(stop); running.Wait() })
}

// saidWhy wants a reason from each process that ended by itself, and forgets the process.
func (k *kills) saidWhy() (ended, early int) {
	k.t.Helper()
	k.up.mu.Lock()
	defer k.up.mu.Unlock()
	for _, said := range slices.Concat(k.up.ends, k.up.early) {
		if !strings.Contains(said, "exit status 1") || !strings.Contains(said, "no space left on device") || !strings.Contains(said, "free space") {
			k.t.Errorf("ended, and did not say that the disk is full: %s", said)
		}
	}
	ended, early = len(k.up.ends), len(k.up.early)
	k.up.ends, k.up.early = nil, nil
	return ended, early
}
