package bustest_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/countmill/countmill/backend"
	"github.com/countmill/countmill/backend/bustest"
	"github.com/countmill/countmill/wire"
)

// A naive bus is one in memory that lacks a promise.
type naive struct {
	lacks  string
	gate   *backend.Gate
	out    chan *message.Message
	n      atomic.Int64
	tasks  sync.WaitGroup
	one    sync.Mutex
	closed sync.Once
}

func newNaive(lacks string) *naive {
	return &naive{lacks: lacks, gate: backend.NewGate("naive", "increments"), out: make(chan *message.Message)}
}

func (b *naive) Publish(topic string, messages ...*message.Message) error {
	if b.lacks == "PublishAfterCloseErrors" && b.gate.Life.Err() != nil {
		return nil
	}
	return b.gate.Publish(topic, func() error {
		for _, m := range messages {
			n := b.n.Add(1)
			if b.lacks == "ConcurrentPublishers" && n%100 == 0 {
				continue
			}
			b.tasks.Go(func() { b.deliver(m, n) })
		}
		return nil
	})
}

// deliver delivers a message until it is acked.
func (b *naive) deliver(sent *message.Message, n int64) {
	if b.lacks == "ManyUnackedAtOnce" {
		b.one.Lock()
		defer b.one.Unlock()
	}
	var again <-chan time.Time
	for times := 0; ; times++ {
		m := sent.Copy()
		m.Metadata.Set(wire.MetaBrokerID, fmt.Sprint(n))
		if b.lacks == "NackedComesAgain, its id" {
			m.Metadata.Set(wire.MetaBrokerID, fmt.Sprint(n, times))
		}
		if b.lacks == "ContentIsUnchanged" {
			m.Payload = m.Payload[:len(m.Payload)/2]
		}
		if b.lacks == "HeldStays" {
			again = time.After(100 * time.Millisecond)
		}
		select {
		case b.out <- m:
		case <-b.gate.Life.Done():
			return
		}
		select {
		case <-m.Acked():
			if b.lacks != "AckedIsGone" {
				return
			}
		case <-m.Nacked():
			if b.lacks == "NackedComesAgain" {
				return
			}
		case <-again:
		case <-b.gate.Life.Done():
			return
		}
	}
}

func (b *naive) Subscribe(context.Context, string) (<-chan *message.Message, error) {
	return b.out, nil
}

func (b *naive) Close() error {
	err := b.gate.Close()
	b.tasks.Wait()
	if b.lacks != "CloseEndsTheChannel" {
		b.closed.Do(func() { close(b.out) })
	}
	return err
}

// lacks is the variable that names the missing promises of the bus of TestSuite.
const lacks = "COUNTMILL_TEST_BUS_LACKS"

// A bus in memory that keeps all promises passes.
func TestSuite(t *testing.T) {
	bustest.Run(t, func(*testing.T) bustest.Bus {
		bus := bustest.Bus{Redelivers: true, AnswersClosed: true, Lease: 100 * time.Millisecond, Topic: "increments"}
		b := newNaive(os.Getenv(lacks))
		if b.lacks != "" {
			bus.Wait = 2 * time.Second // for what never comes
		}
		bus.Publisher, bus.Subscriber = b, b
		return bus
	})
}

// Each test of the suite fails for a bus that lacks its promise.
func TestNaiveBuses(t *testing.T) {
	t.Parallel()
	for _, promise := range []string{
		"ContentIsUnchanged", "ManyUnackedAtOnce", "HeldStays", "AckedIsGone", "NackedComesAgain", "NackedComesAgain, its id",
		"ConcurrentPublishers", "CloseEndsTheChannel", "PublishAfterCloseErrors",
	} {
		t.Run(promise, func(t *testing.T) {
			t.Parallel()
			test, _, _ := strings.Cut(promise, ",")
			// Several times: a pause of the machine can hide a message that comes too often.
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "^TestSuite$/^"+test+"$", "-test.count", "3", "-test.timeout", "5m")
			cmd.Env = append(os.Environ(), lacks+"="+promise)
			if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "--- FAIL: TestSuite/"+test+" ") {
				t.Errorf("the suite does not find it: %v\n%s", err, out)
			}
		})
	}
}
