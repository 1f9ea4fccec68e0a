package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/internal/testing/child"
	"github.com/countmill/countmill/internal/testing/longtest"
	"github.com/countmill/countmill/publisher"
	"github.com/countmill/countmill/wire"
)

// A publisher library adds far more increments than its bus takes; at first the bus is unavailable. Add
// returns ErrOverloaded, memory stays below a limit, and every accepted increment arrives. The
// publisher runs in a process of its own, so that its memory can be measured.
func TestOverloadedPublisher(t *testing.T) {
	if os.Getenv(childVariable) != "" {
		overloadedChild(t)
		return
	}
	longtest.Only(t, "keeps the machine busy for many seconds")
	if _, err := memoryOf(os.Getpid()); err != nil {
		t.Skip(err)
	}
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	length := overloadLength(t)
	publisher := exec.Command(binary, "-test.run", "^TestOverloadedPublisher$", "-test.v", "-test.timeout", "10m")
	publisher.Env = append(os.Environ(), "GOMEMLIMIT=", "GOGC=", childVariable+"="+length.String())
	var out bytes.Buffer
	publisher.Stdout, publisher.Stderr = &out, os.Stderr
	if err := publisher.Start(); err != nil {
		t.Fatal(err)
	}
	g, err := child.GuardProcess(publisher.Process.Pid)
	watched := watchMemory(publisher.Process.Pid)
	ended := publisher.Wait()
	most := watched().most
	if err == nil {
		g.End()
	}
	_, text, _ := bytes.Cut(out.Bytes(), []byte(childMark))
	var r overloadedResult
	if err := json.NewDecoder(bytes.NewReader(text)).Decode(&r); err != nil || ended != nil {
		t.Fatalf("the process ended with %v, %v\n%s", ended, err, out.Bytes())
	}
	t.Logf("\n%s", rows([][2]string{
		{"Adds while the bus was away, of them accepted", fmt.Sprintf("%d, %d", r.Offered[0], r.Accepted[0])},
		{"Adds while it took little, of them accepted", fmt.Sprintf("%d, %d", r.Offered[1], r.Accepted[1])},
		{"times what was accepted", fmt.Sprintf("%.1f, %.1f", r.times(0), r.times(1))},
		{"MiB, at most", fmt.Sprint(most >> 20)},
		{"seconds from the bus taking all to the last one", fmt.Sprintf("%.1f", r.Drained)},
	}))
	if r.Offered[0] == r.Accepted[0] || r.Offered[1] == r.Accepted[1] || r.times(1) < float64(timesOf(t, "COUNTMILL_TEST_OVERLOAD_TIMES", 1)) {
		t.Errorf("%d of %d were accepted: that is no overload", r.Accepted, r.Offered)
	}
	if r.Wrong != "" {
		t.Error(r.Wrong)
	}
	if r.Added != r.Sent {
		t.Errorf("by hashes of their names %v were accepted, and %v sent", r.Added, r.Sent)
	}
	if most > publisherMemory {
		t.Errorf("it took %d MiB, want at most %d", most>>20, publisherMemory>>20)
	}
}

const (
	// publisherMemory is what docs/evidence/tests.md states for 200,000 open entries.
	publisherMemory = 256 << 20

	childVariable = "COUNTMILL_TEST_OVERLOADED_PUBLISHER"
	childMark     = "result: "
	buckets       = 16
)

type overloadedResult struct {
	Offered, Accepted [2]int64
	Added, Sent       [buckets]int64 // increments, by a hash of their names
	Drained           float64
	Wrong             string
}

// times returns the ratio of offered to accepted increments.
func (r *overloadedResult) times(phase int) float64 {
	return float64(r.Offered[phase]) / float64(max(r.Accepted[phase], 1))
}

// A slowBus is unavailable at first. Then it takes a message every so often, and in the end all.
type slowBus struct {
	slow, fast chan struct{}
	seed       maphash.Seed
	one        sync.Mutex // takes one message

	mu   sync.Mutex
	sent [buckets]int64
	err  error
}

func (b *slowBus) Publish(_ string, messages ...*message.Message) error {
	for _, m := range messages {
		select {
		case <-b.slow:
		case <-m.Context().Done():
			return m.Context().Err()
		}
		b.take(m)
	}
	return nil
}

func (b *slowBus) take(m *message.Message) {
	b.one.Lock()
	defer b.one.Unlock()
	select {
	case <-b.fast:
	case <-time.After(2 * time.Second):
	}
	batch, err := wire.Decode(m.Payload)
	b.mu.Lock()
	defer b.mu.Unlock()
	if err != nil {
		b.err = err
		return
	}
	for _, p := range batch.Parts {
		for _, e := range p.Entries {
			b.sent[bucket(b.seed, e.Counter)] += e.Delta
		}
	}
}

func (b *slowBus) Close() error { return nil }

func bucket(seed maphash.Seed, name string) int { return int(maphash.String(seed, name) % buckets) }

func overloadedChild(t *testing.T) {
	length, err := time.ParseDuration(os.Getenv(childVariable))
	if err != nil {
		t.Fatal(err)
	}
	bus := &slowBus{slow: make(chan struct{}), fast: make(chan struct{}), seed: maphash.MakeSeed()}
	p, err := publisher.New(bus, publisher.Config{MaxEntries: 200_000, MaxBytes: 64 << 20})
	if err != nil {
		t.Fatal(err)
	}
	var r overloadedResult
	r.add(p, bus.seed, 0, length/2)
	close(bus.slow)
	r.add(p, bus.seed, 1, length/2)
	close(bus.fast)
	began := time.Now()
	if err := p.Close(t.Context()); err != nil {
		r.Wrong = "Close: " + err.Error()
	}
	r.Drained = time.Since(began).Seconds()
	bus.mu.Lock()
	defer bus.mu.Unlock()
	if r.Sent = bus.sent; bus.err != nil {
		r.Wrong = bus.err.Error()
	}
	text, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Printf("%s%s\n", childMark, text)
}

// add adds random names from many, as fast as two goroutines can. On a slow machine it continues until
// something is refused.
func (r *overloadedResult) add(p *publisher.Publisher, seed maphash.Seed, phase int, length time.Duration) {
	var adders sync.WaitGroup
	var mu sync.Mutex
	began := time.Now()
	for range 2 {
		adders.Go(func() {
			var mine overloadedResult
			refused := false
			for n := 0; n%256 != 0 || time.Since(began) < length || !refused && time.Since(began) < time.Minute; n++ {
				name := fmt.Sprintf("page:/products/%d", rand.IntN(100_000_000))
				mine.Offered[phase]++
				err := p.Add(name, 1)
				refused = refused || err != nil
				switch {
				case err == nil:
					mine.Accepted[phase]++
					mine.Added[bucket(seed, name)]++
				case !errors.Is(err, countmill.ErrOverloaded):
					mine.Wrong = "Add: " + err.Error()
				}
			}
			mu.Lock()
			defer mu.Unlock()
			r.Offered[phase] += mine.Offered[phase]
			r.Accepted[phase] += mine.Accepted[phase]
			for i, n := range mine.Added {
				r.Added[i] += n
			}
			if mine.Wrong != "" {
				r.Wrong = mine.Wrong
			}
		})
	}
	adders.Wait()
}
