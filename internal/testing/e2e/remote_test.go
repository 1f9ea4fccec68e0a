package e2e

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/countmill/countmill/internal/testing/child"
	"github.com/countmill/countmill/internal/testing/faultproxy"
)

// Two publisher processes send over HTTP to one `countmill up`. All three are killed at random, and the
// connections between them are cut, silent or half open. Every increment that Publish or Flush confirmed
// is counted once. A request of unknown outcome is sent again with the same id or key, until it is
// confirmed: so every total is exact.
//
// COUNTMILL_TEST_REMOTE is how long that goes on (5s), COUNTMILL_TEST_SEED decides the faults.
func TestRemotePublishers(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("builds countmill and kills it for seconds")
	}
	length := lengthOf(t, "COUNTMILL_TEST_REMOTE", 5*time.Second)
	d := newRemotes(t, seed(t))
	faults := make(map[string]int)
	for began := time.Now(); time.Since(began) < length; {
		<-time.After(time.Duration(50+d.rand.IntN(400)) * time.Millisecond)
		faults[d.strike()]++
	}
	d.proxy.Heal()
	d.ledger.finish()
	until(t, 2*time.Minute, "everything to be confirmed", d.ledger.settled)
	for _, p := range d.publishers {
		p.end()
	}
	t.Logf("%s: faults %v; %s", length, faults, d.ledger.summary())
	d.ledger.check(t, d.up.up())
}

type remotes struct {
	rand       *mathrand.Rand
	up         *member
	proxy      *faultproxy.Proxy
	ledger     *remoteLedger
	publishers []*remotePublisher
}

func newRemotes(t *testing.T, seed uint64) *remotes {
	t.Helper()
	port, err := child.KeepPort()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = port.Free() })
	address := port.Addr()
	d := &remotes{rand: mathrand.New(mathrand.NewPCG(seed, 1<<34)), ledger: &remoteLedger{}}
	d.up = keep(t, nil, "up", "--data", t.TempDir(), "--listen", address)
	until(t, time.Minute, "countmill up to be ready", d.up.ready)
	d.proxy = faultproxy.Start(t, address)
	for range 2 {
		p := &remotePublisher{address: "http://" + d.proxy.Host(), ledger: d.ledger, ended: make(chan struct{})}
		d.publishers = append(d.publishers, p)
		go p.supervise(t)
		t.Cleanup(p.end)
	}
	return d
}

// strike does something bad, and returns its name.
func (d *remotes) strike() string {
	brief := func() { <-time.After(time.Duration(d.rand.IntN(300)) * time.Millisecond) }
	switch d.rand.IntN(8) {
	case 0, 1:
		d.up.kill()
		return "up killed"
	case 2, 3:
		d.publishers[d.rand.IntN(len(d.publishers))].kill()
		return "publisher killed"
	case 4, 5:
		d.proxy.Cut()
		brief()
		d.proxy.Heal()
		return "connections cut"
	case 6:
		d.proxy.Hang()
		brief()
		d.proxy.Heal()
		return "connections silent"
	}
	d.proxy.Orphan()
	return "connections half open"
}

// A remoteRequest is a call of Publish or PublishKeyed, or calls of Add and a Flush.
type remoteRequest struct {
	N       int
	Counter string
	Delta   int64
	ID, Key string
	Adds    int // calls of Add, before a Flush
}

// A remoteAnswer is the outcome of a request.
type remoteAnswer struct {
	N     int
	Error string // empty: confirmed
	// Fatal: nothing here may cause this error.
	Fatal bool
}

// remoteKeyed is the number of increments of a keyed request: more than fit one part.
const remoteKeyed = 30

// A remoteLedger has every request with its outcome.
type remoteLedger struct {
	mu        sync.Mutex
	n         int
	open      map[int]remoteRequest
	again     []remoteRequest // of unknown outcome, to be sent again
	confirmed map[string]int64
	flushed   map[string]int64 // exact totals of confirmed rounds
	maybe     map[string]int64 // rounds that may count: at most this
	repeats   int
	done      bool
	problems  []string
}

// next returns the next request; false if there are none for now.
func (l *remoteLedger) next() (r remoteRequest, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open == nil {
		l.open, l.confirmed = make(map[int]remoteRequest), make(map[string]int64)
		l.flushed, l.maybe = make(map[string]int64), make(map[string]int64)
	}
	switch {
	case len(l.again) > 0:
		r, l.again = l.again[0], l.again[1:]
		l.repeats++
	case l.done:
		return r, false
	default:
		l.n++
		r = remoteRequest{N: l.n, Counter: fmt.Sprint("id:", l.n%7), Delta: int64(1 + l.n%5), ID: fmt.Sprint("id-", l.n)}
		switch l.n % 8 {
		case 0:
			r = remoteRequest{N: l.n, Counter: "key:", Delta: 1, Key: fmt.Sprint("key-", l.n)}
		case 1: // a counter of its own: its total has known bounds
			r = remoteRequest{N: l.n, Counter: fmt.Sprint("round:", l.n), Adds: 50}
		}
	}
	l.open[r.N] = r
	return r, true
}

// answered takes an outcome in. An unknown one is sent again, if it has an id or a key.
func (l *remoteLedger) answered(a remoteAnswer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r, ok := l.open[a.N]
	if !ok {
		return
	}
	delete(l.open, a.N)
	switch {
	case a.Fatal:
		l.problems = append(l.problems, fmt.Sprintf("request %+v: %s", r, a.Error))
	case a.Error == "" && r.Adds > 0:
		l.flushed[r.Counter] = int64(r.Adds)
	case a.Error == "" && r.Key != "":
		for i := range remoteKeyed {
			l.confirmed[fmt.Sprint(r.Counter, i)] += r.Delta
		}
	case a.Error == "":
		l.confirmed[r.Counter] += r.Delta
	case r.Adds > 0:
		l.maybe[r.Counter] = int64(r.Adds)
	default:
		l.again = append(l.again, r)
	}
}

func (l *remoteLedger) finish() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.done = true
}

func (l *remoteLedger) settled() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.open)+len(l.again) == 0
}

func (l *remoteLedger) summary() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return fmt.Sprintf("%d requests, %d repeats, %d rounds confirmed, %d rounds of unknown outcome", l.n, l.repeats, len(l.flushed), len(l.maybe))
}

// check compares every total.
func (l *remoteLedger) check(t *testing.T, up *process) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range l.problems {
		t.Error(p)
	}
	if len(l.confirmed) == 0 || len(l.flushed) == 0 {
		t.Errorf("nothing was confirmed: %d counters, %d rounds", len(l.confirmed), len(l.flushed))
	}
	least := make(map[string]int64)
	most := make(map[string]int64)
	for _, exact := range []map[string]int64{l.confirmed, l.flushed} {
		for counter, n := range exact {
			least[counter], most[counter] = n, n
		}
	}
	for counter, n := range l.maybe {
		least[counter], most[counter] = 0, n
	}
	var counters []string
	for counter := range most {
		counters = append(counters, counter)
	}
	wrong := 0
	for len(counters) > 0 {
		n := min(len(counters), 1000)
		got, err := up.ask("0s", counters[:n]...)
		if err != nil {
			t.Fatal(err)
		}
		for _, total := range got.Totals {
			if total.Total < least[total.Counter] || total.Total > most[total.Counter] {
				if wrong++; wrong < 10 {
					t.Errorf("total of %s is %d, want %d to %d", total.Counter, total.Total, least[total.Counter], most[total.Counter])
				}
			}
		}
		counters = counters[n:]
	}
	if wrong > 0 {
		t.Errorf("%d totals are wrong", wrong)
	}
}

// A remotePublisher is a process with the library, which is started again whenever it is killed.
type remotePublisher struct {
	address string
	ledger  *remoteLedger

	mu      sync.Mutex
	cmd     *exec.Cmd
	stopped bool
	ended   chan struct{}
}

func (p *remotePublisher) kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd != nil {
		_ = p.cmd.Process.Kill()
	}
}

func (p *remotePublisher) end() {
	p.mu.Lock()
	p.stopped = true
	p.mu.Unlock()
	p.kill()
	<-p.ended
}

func (p *remotePublisher) supervise(t *testing.T) {
	defer close(p.ended)
	for {
		p.mu.Lock()
		stopped := p.stopped
		p.mu.Unlock()
		if stopped {
			return
		}
		if err := p.life(); err != nil {
			t.Errorf("a publisher process: %v", err)
			return
		}
	}
}

// life is one life of the process.
func (p *remotePublisher) life() error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), remoteVariable+"="+p.address)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	p.mu.Lock()
	if p.stopped {
		p.mu.Unlock()
		return nil
	}
	err = cmd.Start()
	p.cmd = cmd
	p.mu.Unlock()
	if err != nil {
		return err
	}
	guard, err := child.GuardProcess(cmd.Process.Pid)
	if err != nil {
		return err
	}
	p.talk(in, out)
	guard.End()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cmd = nil
	if err := cmd.Wait(); err != nil && !strings.Contains(err.Error(), "signal: killed") {
		return err
	}
	return nil
}

// talk has eight requests under way, until the process ends. The outcomes of the rest are unknown then.
func (p *remotePublisher) talk(in io.WriteCloser, out io.Reader) {
	slots := make(chan struct{}, 8)
	asked := make(map[int]bool) // guarded by mu
	var mu sync.Mutex
	var sending sync.WaitGroup
	over := make(chan struct{})
	sending.Go(func() {
		encode := json.NewEncoder(in)
		for {
			select {
			case slots <- struct{}{}:
			case <-over:
				return
			}
			r, ok := p.ledger.next()
			if !ok {
				<-slots
				select {
				case <-time.After(20 * time.Millisecond):
					continue
				case <-over:
					return
				}
			}
			mu.Lock()
			asked[r.N] = true
			mu.Unlock()
			_ = encode.Encode(r) // the end of out says that the process is gone
		}
	})
	for decode := json.NewDecoder(bufio.NewReader(out)); ; {
		var a remoteAnswer
		if decode.Decode(&a) != nil {
			break
		}
		mu.Lock()
		delete(asked, a.N)
		mu.Unlock()
		p.ledger.answered(a)
		<-slots
	}
	close(over)
	sending.Wait()
	_ = in.Close()
	for n := range asked {
		p.ledger.answered(remoteAnswer{N: n, Error: "the process was killed"})
	}
}
