package publisher

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/go-cmp/cmp"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/wire"
)

// A completionBus keeps which completion marker has which counters, as an aggregator would insert them.
type completionBus struct {
	mu          sync.Mutex
	completions map[wire.PartID]map[string]bool
	single      int
}

func (b *completionBus) Publish(_ string, messages ...*message.Message) error {
	batch, err := wire.Decode(messages[0].Payload)
	if err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	id := batch.Flush.Hash().Completion(batch.Number)
	if p := &batch.Parts[0]; len(batch.Parts) == 1 && p.Kind == wire.Anonymous && p.ID.Completion() == id {
		b.single++
		id = p.ID
	}
	b.completions[id] = make(map[string]bool)
	for _, p := range batch.Parts {
		for _, e := range p.Entries {
			b.completions[id][e.Counter] = true
		}
	}
	return nil
}

// has reports whether the messages of a receipt have a counter.
func (b *completionBus) has(t *testing.T, r wire.Receipt, counter string) (has bool) {
	t.Helper()
	parsed, err := wire.ParseReceipt(r.String())
	if err != nil {
		t.Fatal(err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, id := range parsed.Completions() {
		counters, ok := b.completions[id]
		if !ok {
			t.Errorf("the receipt names message %s, which the bus does not have", id)
		}
		has = has || counters[counter]
	}
	return has
}

// The receipt of a call names messages with all of its increments, and few others.
func TestReceiptsNameTheirMessages(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		leave2000()
		bus := &completionBus{completions: make(map[wire.PartID]map[string]bool)}
		p, err := New(bus, Config{Linger: time.Second, Database: wire.TagOf("db")})
		must(t, err)
		defer p.Close(context.Background())
		var large []countmill.Increment
		for i := range 3000 { // two messages
			large = append(large, countmill.Increment{Counter: fmt.Sprintf("%0400d", i), Delta: 1})
		}
		calls := map[string]func() (Sent, error){
			large[0].Counter: func() (Sent, error) { return p.PublishKeyed(t.Context(), "", "k", large...) },
			"plain":          func() (Sent, error) { return p.Publish(t.Context(), inc("plain", 1)) },
			"id": func() (Sent, error) {
				return p.Publish(t.Context(), countmill.Increment{Counter: "id", Delta: 1, ID: "x"})
			},
		}
		var mu sync.Mutex
		sent := make(map[string]Sent)
		for counter, call := range calls {
			go func() {
				s, err := call()
				must(t, err)
				mu.Lock()
				sent[counter] = s
				mu.Unlock()
			}()
			synctest.Wait()
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		for counter, s := range sent {
			if s.Counted || s.Receipt.Database != wire.TagOf("db") || !bus.has(t, s.Receipt, counter) {
				t.Errorf("the receipt of %.20q lacks it: %+v", counter, s)
			}
		}
		if n := sent[large[0].Counter].Receipt.Messages(); n < 2 || n > 3 {
			t.Errorf("a request in two messages or three has a receipt of %d", n)
		}
		if n := sent["plain"].Receipt.Messages(); n != 1 {
			t.Errorf("one increment has a receipt of %d messages", n)
		}
		// Alone, it is its own completion marker. Increments that cancel out are in no message.
		s, err := p.Publish(t.Context(), inc("alone", 1))
		if must(t, err); bus.single != 1 || !bus.has(t, s.Receipt, "alone") {
			t.Errorf("%d single parts, want 1: %+v", bus.single, s)
		}
		s, err = p.Publish(t.Context(), inc("zero", 1), inc("zero", -1))
		if must(t, err); s.Receipt.IsZero() || s.Receipt.Messages() != 0 {
			t.Errorf("increments that cancel out: %+v, want a receipt of nothing", s)
		}
	})
}

// The receipt of a Flush has what was added since Sent.Since, also in batches that had left before.
func TestReceiptsOfFlush(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		leave2000()
		bus := &completionBus{completions: make(map[wire.PartID]map[string]bool)}
		p, err := New(bus, Config{Linger: 100 * time.Millisecond})
		must(t, err)
		defer p.Close(context.Background())
		must(t, p.Add("early", 1))
		time.Sleep(6 * time.Second)
		must(t, p.Add("left", 1))
		time.Sleep(3 * time.Second)
		must(t, p.Add("now", 1))
		s, err := p.Flush(t.Context())
		must(t, err)
		if !bus.has(t, s.Receipt, "left") || !bus.has(t, s.Receipt, "now") || bus.has(t, s.Receipt, "early") {
			t.Errorf("the receipt has left: %t, now: %t, early: %t; want all but early", bus.has(t, s.Receipt, "left"), bus.has(t, s.Receipt, "now"), bus.has(t, s.Receipt, "early"))
		}
		if ago := time.Since(s.Since); ago != flushCovers {
			t.Errorf("it says since %s ago, want %s", ago, flushCovers)
		}
		// More batches than a receipt has room for: it says so.
		for i := range wire.MaxReceiptSpans + 5 {
			must(t, p.Add(fmt.Sprint("many", i), 1))
			s, err = p.Flush(t.Context())
			must(t, err)
			time.Sleep(10 * time.Millisecond)
		}
		if len(s.Receipt.Spans) != wire.MaxReceiptSpans || time.Since(s.Since) > 800*time.Millisecond || !bus.has(t, s.Receipt, "many68") {
			t.Errorf("%d spans since %s ago, want %d since less than 0.8s", len(s.Receipt.Spans), time.Since(s.Since), wire.MaxReceiptSpans)
		}
	})
}

// An answer about a message: its own receipt, the moment since when it is counted, or nothing.
type told struct {
	receipt wire.Receipt
	asOf    time.Time
}

// A tellingBus answers the messages as an HTTP bus does, in the order of their numbers.
type tellingBus []told

func (b tellingBus) Publish(_ string, messages ...*message.Message) error {
	batch, err := wire.Decode(messages[0].Payload)
	if err != nil {
		return err
	}
	says := b[min(batch.Number, len(b)-1)]
	wire.OfferedReply(messages[0].Context()).Answer(says.receipt, says.asOf)
	return nil
}

// The answers about all messages of a call become one. It promises no more than the weakest of them.
func TestAnswersOfSeveralMessages(t *testing.T) {
	t.Parallel()
	early, late := time.UnixMicro(1_800_000_000_000_000), time.UnixMicro(1_800_000_001_000_000)
	named := func(flush byte, number int) told {
		span := wire.Span{Flush: wire.FlushHash{flush}, First: number, Last: number}
		return told{receipt: wire.Receipt{Database: wire.TagOf("theirs"), Time: early, Spans: []wire.Span{span}}}
	}
	for name, tc := range map[string]struct {
		bus     tellingBus
		spans   []wire.Span
		counted bool
		asOf    time.Time
	}{
		"named":             {bus: tellingBus{named(1, 0), named(1, 1)}, spans: []wire.Span{{Flush: wire.FlushHash{1}, Last: 1}}},
		"of two servers":    {bus: tellingBus{named(1, 0), named(2, 1)}, spans: []wire.Span{{Flush: wire.FlushHash{1}}, {Flush: wire.FlushHash{2}, First: 1, Last: 1}}},
		"counted":           {bus: tellingBus{{asOf: late}, {asOf: early}}, counted: true, asOf: late},
		"one is counted":    {bus: tellingBus{{asOf: late}, named(1, 1)}, spans: []wire.Span{{Flush: wire.FlushHash{1}, First: 1, Last: 1}}},
		"one is not known":  {bus: tellingBus{named(1, 0), {}}},
		"the other neither": {bus: tellingBus{{asOf: late}, {}}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				leave2000()
				p, err := New(tc.bus, Config{Linger: time.Second})
				must(t, err)
				defer p.Close(context.Background())
				var large []countmill.Increment
				for i := range 2000 { // two messages
					large = append(large, countmill.Increment{Counter: fmt.Sprintf("%0400d", i), Delta: 1})
				}
				check := func(call string, s Sent) {
					if diff := cmp.Diff(tc.spans, s.Receipt.Spans); diff != "" || s.Counted != tc.counted || !s.CountedAsOf.Equal(tc.asOf) {
						t.Errorf("%s: got %+v, spans (-want +got):\n%s", call, s, diff)
					}
					if len(tc.spans) > 0 && s.Receipt.Database != wire.TagOf("theirs") {
						t.Errorf("%s: got the database %x, want that of the server", call, s.Receipt.Database)
					}
				}
				for call, send := range map[string]func() (Sent, error){
					"Publish":      func() (Sent, error) { return p.Publish(t.Context(), large...) },
					"PublishKeyed": func() (Sent, error) { return p.PublishKeyed(t.Context(), "", "k", large...) },
				} {
					s, err := send()
					must(t, err)
					check(call, s)
				}
				for _, inc := range large {
					must(t, p.Add(inc.Counter, 1))
				}
				s, err := p.Flush(t.Context())
				must(t, err)
				check("Flush", s)
			})
		})
	}
}

// A replyingBus passes replies, and counts messages or does not.
type replyingBus bool

func (count replyingBus) Publish(_ string, messages ...*message.Message) error {
	if r := wire.ReplyOf(wire.PassReply(context.Background(), messages[0].Context())); count {
		r.Count()
	}
	return nil
}
