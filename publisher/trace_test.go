package publisher

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/internal/testing/tracetest"
	"github.com/countmill/countmill/wire"
)

// marks makes the bus keep the span that each message carries.
func (b *fakeBus) marks() *[]string {
	var marks []string
	b.answer = func(_ int, m *message.Message) (bool, error) {
		b.mu.Lock()
		defer b.mu.Unlock()
		marks = append(marks, m.Metadata.Get(wire.MetaTrace))
		return true, nil
	}
	return &marks
}

// publishTraced sends an increment for each span, all at once, and waits.
func publishTraced(t *testing.T, p *Publisher, spans ...wire.Trace) {
	t.Helper()
	answers := make(chan error, len(spans))
	for i, span := range spans {
		go func() {
			_, err := p.Publish(wire.WithTrace(ctx, span), inc("a", 1))
			answers <- err
		}()
		if i == 0 {
			synctest.Wait() // it is the first of the batch
		}
	}
	for range spans {
		must(t, <-answers)
	}
}

func TestAMessageNamesItsRequests(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		bus, spans := newBus(t), new(tracetest.Recorder)
		marks := bus.marks()
		p := open(t, bus, Config{Linger: time.Second, Tracer: spans})
		unsampled := tracetest.Caller(9)
		unsampled.Sampled = false
		callers := []wire.Trace{tracetest.Caller(0), unsampled}
		for i := range 2 * wire.MaxTraces {
			callers = append(callers, tracetest.Caller(byte(10+i)))
		}
		publishTraced(t, p, callers...)
		closeNow(t, p)
		got := spans.Spans()
		if len(got) != 1 || bus.calls != 1 {
			t.Fatalf("got %d spans for %d messages, want 1 for 1", len(got), bus.calls)
		}
		if got[0].Parent != callers[0] || got[0].Kind != wire.SendStep || got[0].Failure != "" {
			t.Errorf("got %+v, want a child of the first request", got[0])
		}
		if n := len(got[0].Links); n != wire.MaxTraces-1 {
			t.Errorf("got %d links, want %d", n, wire.MaxTraces-1)
		}
		for _, link := range got[0].Links {
			if !link.Sampled || link == callers[0] {
				t.Errorf("a link to %v", link)
			}
		}
		if (*marks)[0] != got[0].Trace.String() {
			t.Errorf("the message carries %q, want %q", (*marks)[0], got[0].Trace)
		}
	})
}

// A request is named by the messages that have its increments, and by no other one of its batch.
func TestOnlyTheMessagesOfARequestNameIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		bus, spans := newBus(t), new(tracetest.Recorder)
		p := open(t, bus, Config{Linger: time.Second, Tracer: spans})
		var large []countmill.Increment // for more than half of a message
		for i := range 30_000 {
			large = append(large, inc(fmt.Sprintf("page:%08d", i), 1))
		}
		for i := range 2 {
			go func() {
				_, _ = p.PublishKeyed(wire.WithTrace(ctx, tracetest.Caller(byte(i))), "", fmt.Sprint(i), large...)
			}()
			synctest.Wait()
		}
		closeNow(t, p)
		named := make(map[wire.Trace]int)
		for _, s := range spans.Spans() {
			named[s.Parent]++
			for _, link := range s.Links {
				named[link]++
			}
		}
		if bus.messages < 3 || named[tracetest.Caller(0)] == 0 || named[tracetest.Caller(0)] >= bus.messages || named[tracetest.Caller(1)] >= bus.messages {
			t.Errorf("%d messages name the requests %v times", bus.messages, named)
		}
	})
}

func TestWithoutASampledRequestNothingIsRecorded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		unsampled := tracetest.Caller(1)
		unsampled.Sampled = false
		for _, tt := range []struct {
			tracer bool
			caller wire.Trace
		}{{true, wire.Trace{}}, {true, unsampled}, {false, tracetest.Caller(1)}} {
			bus, spans := newBus(t), new(tracetest.Recorder)
			marks := bus.marks()
			cfg := Config{}
			if tt.tracer {
				cfg.Tracer = spans
			}
			p := open(t, bus, cfg)
			publishTraced(t, p, tt.caller)
			must(t, p.Add("b", 1))
			closeNow(t, p)
			if len(spans.Spans()) > 0 || len(*marks) != 2 || (*marks)[0] != "" || (*marks)[1] != "" {
				t.Errorf("%+v: got spans %+v, and messages that carry %q", tt, spans.Spans(), *marks)
			}
		}
	})
}

// Every try of a message carries the same span, which ends with the outcome.
func TestASpanHasAllTriesOfItsMessage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		bus, spans := newBus(t), new(tracetest.Recorder)
		marks := make(map[string]int)
		bus.answer = func(call int, m *message.Message) (bool, error) {
			marks[m.Metadata.Get(wire.MetaTrace)]++
			if call < 2 {
				return false, errors.New("private:counter is refused")
			}
			return true, nil
		}
		p := open(t, bus, Config{Tracer: spans})
		publishTraced(t, p, tracetest.Caller(1))
		closeNow(t, p)
		got := spans.Spans()
		if len(got) != 1 || marks[got[0].Trace.String()] != 3 || got[0].Figures[1] != (wire.Figure{Name: "countmill.tries", Value: 3}) {
			t.Errorf("got %+v and messages that carry %v, want one span of three tries", got, marks)
		}
	})
}

func TestALostMessageIsAFailedSpan(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		bus, spans := newBus(t), new(tracetest.Recorder)
		bus.answer = func(int, *message.Message) (bool, error) { return false, errors.New("private:counter is refused") }
		p := open(t, bus, Config{Tracer: spans})
		go func() { _, _ = p.Publish(wire.WithTrace(ctx, tracetest.Caller(1)), inc("a", 1)) }()
		time.Sleep(time.Second)
		short, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		_ = p.Close(short)
		synctest.Wait()
		if got := spans.Spans(); len(got) != 1 || got[0].Failure != "unknown_outcome" {
			t.Errorf("got %+v, want one span with an unknown outcome", got)
		}
	})
}
