package aggregator

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/wire"
)

func newTestAggregator(t *testing.T) *Aggregator {
	t.Helper()
	a, err := New(make(chanBus), nullStore{store.Limits{Keys: 1, Commits: 1, Shards: 1}}, Config{})
	if err != nil {
		t.Fatal(err)
	}
	a.settings.Store(&snapshot{})
	return a
}

func TestReadyFollowsRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := newTestAggregator(t)
		wantReady := func(want string) {
			t.Helper()
			got := "ready"
			if err := a.Ready(); err != nil {
				got = err.Error()
			}
			if got != want {
				t.Errorf("Ready says %q, want %q", got, want)
			}
		}
		wantReady("not started")
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- a.Run(ctx) }()
		time.Sleep(time.Minute)
		wantReady("ready")
		if err := a.Run(ctx); err == nil {
			t.Error("Run took a second call")
		}
		wantReady("ready")
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		wantReady("stopped")
		if a.calls.Err() == nil {
			t.Error("calls to the store may go on after Run")
		}
	})
}

func TestReadyBoundsTheSkew(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for skew, want := range map[time.Duration]bool{0: true, maxSkew: true, -maxSkew: true, maxSkew + 1: false, -maxSkew - 1: false} {
			a := newTestAggregator(t)
			a.state.Store(&state{})
			a.clock.Learn(time.Now().Add(skew), a.clock.Moment())
			if err := a.Ready(); (err == nil) != want {
				t.Errorf("clocks %s apart: %v, want ready: %v", skew, err, want)
			}
			if got := a.Stats().Skew; got != skew.Abs() {
				t.Errorf("clocks %s apart: the stats say %s", skew, got)
			}
		}
	})
}

// A person finds a message by the bus's name for it.
func TestSourceOf(t *testing.T) {
	t.Parallel()
	foreign := message.NewMessage("uuid", nil)
	foreign.Metadata.Set(wire.MetaBrokerID, "17")
	for want, m := range map[string]*message.Message{
		"17":   foreign,
		"uuid": message.NewMessage("uuid", []byte("x")),
		"sha256:2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881": message.NewMessage("", []byte("x")),
	} {
		if got := sourceOf(m); got != want {
			t.Errorf("source %q, want %q", got, want)
		}
	}
}

// If the key changed, the same letter would be stored twice after an upgrade.
func TestDeadLetterKeyIsForEver(t *testing.T) {
	t.Parallel()
	if got, want := deadLetterKey("17", "reason", []byte("content")), "fadab131d57088d34a29bf81b36e58c5"; got != want {
		t.Errorf("key %q, want %q", got, want)
	}
}

// A job that has left the queue must not stay in memory in the queue's array: it holds
// the payloads of its messages.
func TestTheQueueKeepsNoJobThatHasLeftIt(t *testing.T) {
	t.Parallel()
	l := newLoop(newTestAggregator(t))
	for range 10 {
		l.jobs = append(l.jobs, &job{parts: []*part{{from: time.Now()}}})
	}
	for range 10 {
		if l.nextJob(time.Now()) == nil {
			t.Fatal("no job although some are queued")
		}
	}
	for i, j := range l.jobs[:cap(l.jobs)] {
		if j != nil {
			t.Errorf("slot %d of the queue still holds a job", i)
		}
	}
}

// The shard that a job waits for may be released before the loop knows that it waits. If no
// commit under way holds one of its shards, nothing would wake the job.
func TestAJobWaitsOnlyForACommitThatHoldsItsShard(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		running int
		freed   bool
		want    bool
	}{
		"held":                    {1, false, true},
		"free, another under way": {1, true, false},
		"free, nothing under way": {0, true, false},
		"held beside the loop":    {0, false, true},
	} {
		l := newLoop(newTestAggregator(t))
		l.a.inflight = testInflight(Config{})
		first, ok := l.a.inflight.acquire(toShard0("a"), []int{1})
		j := testJob(l, 1)
		o := l.a.attempt(j)
		if !ok || o.verdict != blocked {
			t.Fatalf("%s: verdict %d, want the job to find its shard taken", name, o.verdict)
		}
		if c.freed {
			l.a.inflight.release(first, answer{asked: true})
		}
		l.running = c.running
		l.settle(o)
		if got := l.jobs[0].waits; got != c.want {
			t.Errorf("%s: the job waits: %t", name, got)
		}
	}
}

// Of two jobs that waited for one commit, the second is beyond the deduplication window when it
// could be tried. The first is not left behind.
func TestADroppedJobLeavesNoOtherWaiting(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLoop(newTestAggregator(t))
		l.a.inflight = testInflight(Config{})
		first, late := testJob(l, 1), testJob(l, 1)
		late.parts[0].marked, late.parts[0].from = true, time.Now().Add(-1000*24*time.Hour)
		held, _ := l.a.inflight.acquire(toShard0("a"), []int{1})
		l.running, l.outcomes = 2, make(chan outcome, 2)
		for _, j := range []*job{first, late} {
			l.outcomes <- l.a.attempt(j)
		}
		l.a.inflight.release(held, answer{asked: true})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := l.run(ctx); err != nil || !acked(first.parts[0]) {
			t.Errorf("Run returned %v, acknowledged %v", err, acked(first.parts[0]))
		}
	})
}

// Windows that closed while a job waits for a shard would queue up behind it in small pieces.
func TestAWindowStaysOpenWhileAJobWaitsForAShard(t *testing.T) {
	t.Parallel()
	l := newLoop(newTestAggregator(t))
	l.a.cfg.Linger, l.checked = -1, nil
	blocked := testJob(l, 1)
	blocked.waits = true
	l.jobs = []*job{blocked}
	now := time.Now()
	l.window.add(testJob(l, 1).parts[0], now)
	if l.closeWindow(now) {
		t.Error("closed while a job waits for a shard")
	}
	l.window.messages = l.a.cfg.WindowMessages
	if !l.closeWindow(now) || len(l.jobs) != 2 {
		t.Error("a full window stays open")
	}
}

// A commit without markers whose outcome is unknown ends the process, and the error must be
// reported.
func TestALateDrainReturnsTheFatalError(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLoop(newTestAggregator(t))
		l.a.limits.CertainOutcome = true
		j, noAnswer := testJob(l, 2), errors.New("no answer")
		l.running = 1
		l.outcomes <- outcome{job: j, rest: j.parts, verdict: unknown, err: noAnswer}
		if err := l.giveUp(); !errors.Is(err, noAnswer) {
			t.Errorf("giveUp: %v, want why the process ends", err)
		}
		if j.parts[0].holder.msg.Nack(); acked(j.parts[0]) {
			t.Error("acknowledged although its outcome is unknown")
		}
	})
}

// awayBus takes no subscription.
type awayBus struct{ asked []time.Time }

func (b *awayBus) Subscribe(context.Context, string) (<-chan *message.Message, error) {
	b.asked = append(b.asked, time.Now())
	return nil, errors.New("away")
}

func TestSubscribingBacksOff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		bus := &awayBus{}
		a, err := New(bus, nullStore{store.Limits{Keys: 1, Commits: 1, Shards: 1}}, Config{})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		if err := a.Run(ctx); err != nil {
			t.Fatal(err)
		}
		var waits []time.Duration
		for i := 1; i < len(bus.asked) && i < 12; i++ {
			waits = append(waits, bus.asked[i].Sub(bus.asked[i-1]))
		}
		const ms = time.Millisecond
		want := []time.Duration{100 * ms, 300 * ms, 700 * ms, 1500 * ms, 3100 * ms, 6300 * ms, 12700 * ms, 25500 * ms, 30000 * ms, 30000 * ms, 30000 * ms}
		if !slices.Equal(waits, want) {
			t.Errorf("waits of %s, want %s", waits, want)
		}
	})
}
