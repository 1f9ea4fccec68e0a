package aggregator

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
)

func newTestAggregator(t *testing.T) *Aggregator {
	t.Helper()
	a, err := New(make(chanBus), nullStore{Limits{Keys: 1, Commits: 1, Shards: 1}}, Config{})
	if err != nil {
		t.Fatal(err)
	}
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
			a.clock.Learn(time.Now().Add(skew), 0)
			if err := a.Ready(); (err == nil) != want {
				t.Errorf("clocks %s apart: %v, want ready: %v", skew, err, want)
			}
		}
	})
}

// What the bus calls a message is what a person finds it by.
func TestSourceOf(t *testing.T) {
	t.Parallel()
	foreign := message.NewMessage("uuid", nil)
	foreign.Metadata.Set(MetaBrokerID, "17")
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

// A key that changed would have the same letter twice after an upgrade.
func TestLetterKeyIsForEver(t *testing.T) {
	t.Parallel()
	if got, want := letterKey("17", "reason", []byte("content")), "fadab131d57088d34a29bf81b36e58c5"; got != want {
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

// The shard that a job waits for may have become free before the loop hears of it. With
// no commit under way nothing would wake the job.
func TestAJobWaitsOnlyWhileACommitIsUnderWay(t *testing.T) {
	t.Parallel()
	for _, running := range []int{0, 1} {
		l := &loop{running: running}
		l.wait(outcome{job: &job{}})
		if got := l.jobs[0].waits; got != (running > 0) {
			t.Errorf("with %d commits under way a job waits: %v", running, got)
		}
	}
}
