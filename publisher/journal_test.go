package publisher

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/wire"
)

func ofBilling(counter string) bool { return strings.HasPrefix(counter, "billing:") }

// bySender returns the sums of the bus's messages by sender, minutes since then, counter and delta.
func (b *fakeBus) bySender(since time.Time) map[string]int {
	b.mu.Lock()
	defer b.mu.Unlock()
	got := make(map[string]int)
	for _, batch := range b.batches {
		for i := range batch.Parts {
			p := &batch.Parts[i]
			for _, e := range p.Entries {
				got[fmt.Sprint(p.Sender, " ", batch.Minute(p)-wire.MinuteOf(since), " ", e.Counter, " ", e.Delta)]++
			}
		}
	}
	return got
}

// Increments of counters with a journal are summed by sender and minute, and all others together.
func TestSendersAreKeptApart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		bus := newBus(t)
		p := open(t, bus, Config{Linger: 10 * time.Second, Journal: ofBilling})
		nextMinute()
		began := time.Now()
		var all sync.WaitGroup
		publish := func(sender string, incs ...countmill.Increment) {
			all.Go(func() { must(t, errOf(p.Publish(WithSender(ctx, sender), incs...))) })
		}
		for range 2 {
			publish("shop", inc("billing:a", 1), inc("page", 1))
			publish("web", inc("billing:a", 10), inc("page", 10))
			publish("", inc("billing:a", 100))
		}
		publish("web", countmill.Increment{Counter: "billing:a", Delta: 1000, Time: began.Add(-5 * time.Minute)})
		publish("web", countmill.Increment{Counter: "billing:a", Delta: 7, ID: "e1"}, countmill.Increment{Counter: "page", Delta: 3, ID: "e2"})
		all.Go(func() {
			must(t, errOf(p.PublishKeyed(WithSender(ctx, "shop"), "shop", "k", inc("billing:b", 5))))
		})
		must(t, p.Add("billing:a", 10_000))
		all.Wait()
		closeNow(t, p)
		want := map[string]int{
			"shop 0 billing:a 2": 1, "web 0 billing:a 20": 1, " 0 billing:a 10200": 1, " 0 page 22": 1,
			"web -5 billing:a 1000": 1, "web 0 billing:a 7": 1, " 0 page 3": 1, "shop 0 billing:b 5": 1,
		}
		if diff := cmp.Diff(want, bus.bySender(began)); diff != "" {
			t.Errorf("entries by sender, minute, counter and delta (-want +got):\n%s", diff)
		}
		if n := p.open.entries.Load() + p.open.bytes.Load(); n != 0 {
			t.Errorf("%d entries and bytes are still open", n)
		}
	})
}

// A sender's name that no part can carry is left out, and its increments count without it.
func TestABadSenderIsLeftOut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		bus := newBus(t)
		p := open(t, bus, Config{Journal: ofBilling})
		nextMinute()
		began := time.Now()
		for _, bad := range []string{"a\x00", "\xff", strings.Repeat("x", countmill.MaxID+1)} {
			must(t, errOf(p.Publish(WithSender(ctx, bad), inc("billing:a", 1))))
		}
		must(t, errOf(p.Publish(WithSender(ctx, strings.Repeat("x", countmill.MaxID)), inc("billing:b", 1))))
		closeNow(t, p)
		want := map[string]int{" 0 billing:a 1": 3, strings.Repeat("x", countmill.MaxID) + " 0 billing:b 1": 1}
		if diff := cmp.Diff(want, bus.bySender(began)); diff != "" {
			t.Errorf("entries (-want +got):\n%s", diff)
		}
	})
}

// A batch that comes in gets the name of its real sender where there is evidence of it.
func TestReceiverNamesTheSender(t *testing.T) {
	t.Parallel()
	now := time.Now().Truncate(time.Microsecond)
	part := func(sender, counter string) wire.Part {
		p := wire.CutIdentified(countmill.Increment{Counter: counter, Delta: 1, ID: sender + counter})
		p.Sender = sender
		return p
	}
	b := &wire.Batch{Time: now, Parts: []wire.Part{part("", "billing:a"), part("other", "billing:b"), part("other", "page"), part("", "page")}}
	for name, want := range map[string][]string{"shop": {"shop", "shop", "shop", ""}, "": {"", "", "", ""}} {
		d, _, err := OpenBatch(wire.Append(nil, b), Sender{Name: name, Journal: ofBilling}, now, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		taken, err := wire.Decode(d.payload)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for i := range taken.Parts {
			got = append(got, taken.Parts[i].Sender)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("from %q: senders (-want +got):\n%s", name, diff)
		}
	}
}
