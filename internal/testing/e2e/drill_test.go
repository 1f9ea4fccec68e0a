package e2e

import (
	"fmt"
	mathrand "math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"sync"
	"testing"
	"time"

	"github.com/countmill/countmill/internal/testing/longtest"
)

// The directory of `countmill up` is lost again and again, at a random moment under load, and restored from
// its regular backups. Every total is then one that was true when the backup was taken: it has all increments
// acknowledged before the backup began, and none that was sent after it was taken. Ids in the backup count
// once. Many of the kills interrupt a backup.
//
// COUNTMILL_TEST_DRILLS is how often the directory is lost (3), COUNTMILL_TEST_SEED decides when.
func TestRestoreDrill(t *testing.T) {
	t.Parallel()
	longtest.Only(t, "builds countmill, and loses its directory for many seconds")
	drills := timesOf(t, "COUNTMILL_TEST_DRILLS", 3)
	at := t.TempDir()
	d := &drill{
		t: t, rand: mathrand.New(mathrand.NewPCG(seed(t), 1<<34)), data: filepath.Join(at, "data"), root: filepath.Join(at, "backups"),
		base: make(map[string]int64),
	}
	for n := range drills {
		d.lose(n)
	}
}

// A drill is a directory that is lost and restored.
type drill struct {
	t          *testing.T
	rand       *mathrand.Rand
	data, root string
	base       map[string]int64 // totals when the process of this round started
}

// up starts countmill.
func (d *drill) up() *process {
	return start(d.t, nil, "up", "--data", d.data, "--backup-root", d.root, "--backup-every", "1s", "--backup-keep", "3s").ready(d.t)
}

// lose counts until the process has taken some backups, kills it, removes its directory, restores it, and
// compares every total.
func (d *drill) lose(n int) {
	d.t.Helper()
	began := time.Now()
	p := d.up()
	event := fmt.Sprintf(`{"counter":"event","id":"event-%d"}`, n)
	if status := post(p, event, ""); status != http.StatusAccepted {
		d.t.Fatalf("round %d: an increment was answered with %d", n, status)
	}
	counted, before := time.Now(), p.metric(d.t, "countmill_backups_total")
	j := startJournal(p)
	until(d.t, 2*time.Minute, "two backups", func() bool { return p.metric(d.t, "countmill_backups_total") >= before+2 })
	<-time.After(time.Duration(d.rand.IntN(1500)) * time.Millisecond)
	if n%2 == 0 { // the kill interrupts a backup, which has a mark
		until(d.t, time.Minute, "a backup to begin", func() bool {
			marks, _ := filepath.Glob(filepath.Join(d.root, "busy", "*"))
			return len(marks) > 0
		})
	}
	p.kill()
	if err := os.RemoveAll(d.data); err != nil {
		d.t.Fatal(err)
	}
	increments := j.end()
	from, to := d.restore()
	if from.Before(began) || from.Before(counted) {
		d.t.Fatalf("round %d: the newest backup began at %s, and two were taken after %s", n, from, counted)
	}
	p = d.up()
	if status := post(p, event, ""); status != http.StatusAccepted {
		d.t.Fatalf("round %d: a repeat was answered with %d", n, status)
	}
	least, most := 0, 0
	for counter, sent := range increments {
		low, high := d.base[counter], d.base[counter]
		for _, i := range sent {
			if !i.acknowledged.IsZero() && i.acknowledged.Before(from) {
				low++
			}
			if i.sent.Before(to) {
				high++
			}
		}
		got := d.total(p, counter)
		if got < low || got > high {
			d.t.Errorf("round %d: %s is %d after the restore, want %d to %d", n, counter, got, low, high)
		}
		d.base[counter] = got
		least, most = least+int(low), most+int(high)
	}
	if got := d.total(p, "event"); got != int64(n+1) {
		d.t.Errorf("round %d: event is %d, want %d: ids in the backup count once", n, got, n+1)
	}
	d.t.Logf("round %d: the backup took %s, and has between %d and %d increments", n, to.Sub(from).Round(time.Millisecond), least, most)
	p.stop(d.t)
}

var restoredLine = regexp.MustCompile(`backup (\S+Z)-[0-9a-f]+-[0-9a-f]{16} of \d+ bytes; everything accepted before (\S+) is in it`)

// restore restores the newest backup, and returns when it began and when it was taken.
func (d *drill) restore() (from, to time.Time) {
	d.t.Helper()
	binary, err := buildOnce()
	if err != nil {
		d.t.Fatal(err)
	}
	out, err := exec.CommandContext(d.t.Context(), binary, "restore", d.root, d.data).Output()
	match := restoredLine.FindSubmatch(out)
	if err != nil || match == nil {
		d.t.Fatalf("restore: %v, it printed %q", err, out)
	}
	if to, err = time.Parse("20060102T150405.000000Z", string(match[1])); err == nil {
		from, err = time.Parse(time.RFC3339Nano, string(match[2]))
	}
	if err != nil {
		d.t.Fatal(err)
	}
	return from, to.Add(time.Microsecond) // the name has whole microseconds
}

func (d *drill) total(p *process, counter string) int64 {
	d.t.Helper()
	got, err := p.ask("0s", counter)
	if err != nil {
		d.t.Fatal(err)
	}
	return got.Totals[0].Total
}

// A journal has the increments of one round.
type journal struct {
	stop    chan struct{}
	senders sync.WaitGroup

	mu   sync.Mutex
	sent map[string][]journaled
}

// A journaled is an increment, with when it was sent and acknowledged; never, if the answer was lost.
type journaled struct{ sent, acknowledged time.Time }

func startJournal(p *process) *journal {
	j := &journal{stop: make(chan struct{}), sent: make(map[string][]journaled)}
	for sender := range 8 {
		j.senders.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-j.stop:
					return
				case <-p.exited:
					return
				case <-time.After(time.Millisecond):
				}
				counter := fmt.Sprintf("counter-%d", (sender+n)%20)
				i := journaled{sent: time.Now()}
				if post(p, `{"counter":"`+counter+`"}`, "") == http.StatusAccepted {
					i.acknowledged = time.Now()
				}
				j.mu.Lock()
				j.sent[counter] = append(j.sent[counter], i)
				j.mu.Unlock()
			}
		})
	}
	return j
}

func (j *journal) end() map[string][]journaled {
	close(j.stop)
	j.senders.Wait()
	return j.sent
}
