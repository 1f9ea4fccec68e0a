package aggregator

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/go-cmp/cmp"

	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/wire"
)

// testJob has parts of messages of their own, all held by l.
func testJob(l *loop, n int) *job {
	j := &job{}
	for range n {
		h := &held{msg: message.NewMessage("", nil), open: 1, memory: 10, time: time.Now()}
		l.holding[h] = struct{}{}
		l.heldMemory += h.memory
		p := &part{marked: true, holder: h, at: time.Now(), from: time.Now(), Part: wire.Part{
			ID: wire.PartID{byte(len(l.holding))}, Entries: []wire.Entry{{Counter: "a", Delta: 1}}}}
		l.known[p.ID] = p
		j.parts = append(j.parts, p)
	}
	return j
}

func acked(p *part) bool {
	select {
	case <-p.holder.msg.Acked():
		return true
	default:
		return false
	}
}

// queued is the state of the queue after a verdict.
type queued struct {
	Jobs                                          []int // parts of each
	Later, Attempts, Lookup, Maybe                bool  // of all of them
	Failures                                      int
	Stuck, Halted, Fatal, DeadLettered, FirstOnly bool
}

// TestSettle checks the right-hand side of doc.go's table: the loop's reaction to each verdict
// about four remaining parts, beside one that is applied.
func TestSettle(t *testing.T) {
	t.Parallel()
	noAnswer := errors.New("no answer")
	for name, c := range map[string]struct {
		verdict  verdict
		parts    int // default 4
		attempts int // before
		before   int // failures
		certain  bool
		want     queued
	}{
		"again":                               {verdict: again, before: 3, want: queued{Jobs: []int{4}}},
		"split":                               {verdict: split, before: 3, want: queued{Jobs: []int{2, 2}, Failures: 3}},
		"split, a part alone":                 {verdict: split, parts: 1, before: 3, want: queued{Jobs: []int{1}, Failures: 3}},
		"superseded":                          {verdict: superseded, before: 3, want: queued{Jobs: []int{4}, Later: true, Attempts: true}},
		"refused":                             {verdict: refused, before: 3, want: queued{Jobs: []int{2, 2}}},
		"refused alone":                       {verdict: refused, parts: 1, before: 3, want: queued{DeadLettered: true}},
		"alone":                               {verdict: alone, before: 3, want: queued{Jobs: []int{1, 1, 1, 1}, Later: true, Attempts: true}},
		"unreached":                           {verdict: unreached, before: 3, want: queued{Jobs: []int{4}, Later: true, Attempts: true, Failures: 4}},
		"stuck":                               {verdict: stuck, before: 3, want: queued{Jobs: []int{4}, Later: true, Attempts: true, Failures: 3, Stuck: true}},
		"ignored":                             {verdict: ignored, before: 3, want: queued{Jobs: []int{4}, Failures: 3, Halted: true}},
		"unknown":                             {verdict: unknown, before: 3, want: queued{Jobs: []int{4}, Later: true, Attempts: true, Lookup: true, Maybe: true, Failures: 4}},
		"unknown, the third time":             {verdict: unknown, attempts: 2, before: 3, want: queued{Jobs: []int{2, 2}, Later: true, Attempts: true, Lookup: true, Maybe: true, Failures: 4}},
		"unknown, the second time":            {verdict: unknown, attempts: 1, want: queued{Jobs: []int{4}, Later: true, Attempts: true, Lookup: true, Maybe: true, Failures: 1}},
		"unknown, nothing answered":           {verdict: unknown, attempts: 5, before: away, want: queued{Jobs: []int{2, 2}, Later: true, Attempts: true, Lookup: true, Maybe: true, Failures: away + 1}},
		"unknown, of a store that is certain": {verdict: unknown, certain: true, before: 3, want: queued{Failures: 3, Fatal: true}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				a, err := New(make(chanBus), nullStore{store.Limits{Keys: 1, Commits: 1, Shards: 1, CertainOutcome: c.certain}}, Config{})
				if err != nil {
					t.Fatal(err)
				}
				l := newLoop(a)
				if c.parts == 0 {
					c.parts = 4
				}
				j := testJob(l, c.parts+1)
				done, rest := j.parts[0], j.parts[1:]
				j.attempts, l.failures = c.attempts, c.before
				l.settle(outcome{job: j, applied: []*part{done}, rest: rest, verdict: c.verdict, err: noAnswer})
				got := queued{Failures: l.failures, Stuck: l.stuck, Halted: l.halted != nil, Fatal: l.fatal != nil, DeadLettered: len(l.letters) == 1}
				for _, j := range l.jobs {
					got.Jobs = append(got.Jobs, len(j.parts))
					got.Later = j.after.After(time.Now())
					got.Attempts = j.attempts == c.attempts+1
					got.Lookup = j.lookup
					got.Maybe = j.parts[0].maybe
				}
				if diff := cmp.Diff(c.want, got); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
				if !acked(done) {
					t.Error("the part that is applied is not acknowledged")
				}
				for i, p := range rest {
					if acked(p) {
						t.Errorf("part %d of the rest is acknowledged", i)
					}
				}
				if len(l.holding) != c.parts {
					t.Errorf("%d messages are held, want %d", len(l.holding), c.parts)
				}
			})
		})
	}
}

// Parts that are applied are acknowledged at once, also if the others wait.
func TestSettleAcknowledgesAppliedParts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLoop(newTestAggregator(t))
		j := testJob(l, 4)
		parts := j.parts
		waiting := testJob(l, 1)
		waiting.waits = true
		l.jobs = append(l.jobs, waiting)
		l.failures, l.stuck, l.halved = 3, true, 2
		l.settle(outcome{job: j, applied: parts[:1], duplicates: parts[1:2], conflicts: []conflict{{part: parts[2]}}, rest: parts[3:], verdict: again})
		for i, want := range []bool{true, true, false, false} {
			if got := acked(parts[i]); got != want {
				t.Errorf("part %d acknowledged: %v, want %v", i, got, want)
			}
			if _, known := l.known[parts[i].ID]; known && i < 3 {
				t.Errorf("part %d is still known", i)
			}
		}
		if len(l.letters) != 1 || l.letters[0].dead.Reason != store.ReasonIDReused || l.letters[0].dead.Maybe {
			t.Errorf("%d letters, want one for the reused id", len(l.letters))
		}
		if s := l.a.Stats(); s.Duplicates != 1 || !s.LastCommit.Equal(time.Now()) {
			t.Errorf("stats %+v, want a duplicate and a commit now", s)
		}
		if waiting.waits {
			t.Error("a job still waits for a shard although a commit has ended")
		}
		if l.failures != 0 || l.stuck || l.halved != 0 {
			t.Error("the store has answered, and is still taken to be away")
		}
		l.settle(outcome{job: j, applied: parts[3:]})
		if !acked(parts[3]) || len(l.holding) != 2 || l.heldMemory != 20 { // the letter's and the waiting one's
			t.Errorf("%d messages of %d bytes are held, want 2 of 20", len(l.holding), l.heldMemory)
		}
	})
}

// The next window takes along contended jobs, but not jobs that were tried often, or whose
// outcome is unknown.
func TestAWindowIncludesContendedJobs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLoop(newTestAggregator(t))
		l.checked = nil
		contend := func(parts, attempts int) []*part {
			j := testJob(l, parts)
			j.attempts = attempts - 1
			for i, p := range j.parts {
				p.Entries[0].Counter = fmt.Sprint(i)
			}
			l.settle(outcome{job: j, rest: j.parts, verdict: unknown, err: fmt.Errorf("busy: %w", store.ErrContended)})
			return j.parts
		}
		first, second := contend(1, 1), contend(2, 3)
		unclear := testJob(l, 1)
		l.settle(outcome{job: unclear, rest: unclear.parts, verdict: unknown, err: errors.New("lost")})
		contend(2, patience) // in halves
		for _, p := range testJob(l, 1).parts {
			l.window.add(p, time.Now())
		}
		time.Sleep(time.Minute)
		if !l.closeWindow(time.Now()) {
			t.Fatal("the window does not close")
		}
		type queue struct {
			Parts, Attempts   int
			Contended, Lookup bool
		}
		var got []queue
		for _, j := range l.jobs {
			got = append(got, queue{len(j.parts), j.attempts, j.contended, j.lookup})
		}
		want := []queue{{1, 1, false, true}, {1, patience, true, false}, {1, patience, true, false}, {4, 3, true, false}}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("jobs (-want +got):\n%s", diff)
		}
		for _, p := range append(first, second...) {
			if !p.maybe {
				t.Error("a part that contended is not taken for maybe applied")
			}
		}
		if l.failures != 0 {
			t.Errorf("%d failures, and the store answers", l.failures)
		}
	})
}

// Halves that still contend go with a window again, else their number would grow for ever. Jobs
// that need a look-up, or must be tried alone, stay separate.
func TestContendedJobsAreNotHalvedForEver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLoop(newTestAggregator(t))
		contended := fmt.Errorf("busy: %w", store.ErrContended)
		settle := func(half, contends bool, attempts int, v verdict, err error) {
			j := testJob(l, 2)
			for i, p := range j.parts {
				p.Entries[0].Counter = fmt.Sprint(i)
			}
			j.half, j.contended, j.attempts = half, contends, attempts
			l.settle(outcome{job: j, rest: j.parts, verdict: v, err: err})
		}
		settle(true, true, 2*patience, unknown, contended)
		if parts, attempts := l.takeContended(); len(parts) != 2 || attempts != 0 || len(l.jobs) != 0 {
			t.Errorf("%d parts tried %d times go with a window, %d jobs stay, want 2, 0 and 0", len(parts), attempts, len(l.jobs))
		}
		settle(true, true, 2*patience-1, unknown, contended)
		settle(false, true, 1, unknown, errors.New("lost"))
		settle(false, true, 1, alone, nil)
		if parts, _ := l.takeContended(); len(parts) != 0 || len(l.jobs) != 2+1+2 {
			t.Errorf("%d parts go with a window, %d jobs stay, want 0 and 5", len(parts), len(l.jobs))
		}
	})
}

// A budget depends on what the commits of windows take. Completions have no increments.
func TestCompletionsDoNotSetThePace(t *testing.T) {
	t.Parallel()
	l := newLoop(newTestAggregator(t))
	l.pace.budget, l.pace.takes = time.Minute, 10*time.Second
	j := testJob(l, 1)
	l.settle(outcome{job: j, applied: j.parts})
	if l.pace.takes != 10*time.Second {
		t.Errorf("commits take %s after one without a window, want 10s still", l.pace.takes)
	}
	j = testJob(l, 1)
	j.closed = time.Now().Add(-20 * time.Second)
	l.settle(outcome{job: j, applied: j.parts})
	if l.pace.takes < 20*time.Second {
		t.Errorf("commits take %s after one that took 20s", l.pace.takes)
	}
}

// The halves of a job of one counter would contend with each other.
func TestAJobOfOneCounterIsNotTriedInHalves(t *testing.T) {
	t.Parallel()
	entries := func(counters ...string) (j job) {
		j.attempts = patience
		for _, c := range counters {
			j.parts = append(j.parts, &part{Part: wire.Part{Entries: []wire.Entry{{Counter: c, Delta: 1}}}})
		}
		return j
	}
	one, two := entries("a", "a", "a"), entries("a", "a", "b")
	if one.apart() || !two.apart() {
		t.Errorf("in halves: of one counter %v, of two %v, want false and true", one.apart(), two.apart())
	}
	if two.attempts--; two.apart() {
		t.Error("in halves too soon")
	}
}

// Full jitter below a ceiling that doubles up to 30 s, and stays below a second in a drain.
func TestBackoff(t *testing.T) {
	t.Parallel()
	l := newLoop(newTestAggregator(t))
	longest := func(attempts int) (longest time.Duration) {
		for range 2000 {
			d := l.backoff(attempts)
			if d < time.Millisecond {
				t.Fatalf("a back-off of %s", d)
			}
			longest = max(longest, d)
		}
		return longest
	}
	within := func(attempts int, ceiling time.Duration) {
		t.Helper()
		if got := longest(attempts); got > ceiling+time.Millisecond || got < ceiling*9/10 {
			t.Errorf("after %d attempts at most %s of 2000, want just below %s", attempts, got, ceiling)
		}
	}
	within(1, 100*time.Millisecond)
	within(4, 800*time.Millisecond)
	within(9, 25600*time.Millisecond)
	within(10, 30*time.Second)
	within(1000, 30*time.Second)
	l.draining = true
	within(1, 100*time.Millisecond)
	within(1000, 800*time.Millisecond)
}

// The end of the loop waits for attempts under way, and settles them.
func TestAttemptsUnderWayAtTheEndCount(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLoop(newTestAggregator(t))
		j := testJob(l, 1)
		bad := &held{msg: message.NewMessage("", nil), open: 1}
		l.holding[bad] = struct{}{}
		l.running, l.putting = 1, true
		go func() {
			time.Sleep(time.Second)
			l.outcomes <- outcome{job: j, applied: j.parts}
			l.puts <- putResult{letters: [][]*deadLetter{{{holders: []*held{bad}}}}, dead: []store.DeadLetter{{}}}
		}()
		if err := l.giveUp(); err != nil {
			t.Errorf("giveUp: %v, though nothing is left", err)
		}
		if !acked(j.parts[0]) {
			t.Error("applied at the end, and not acknowledged")
		}
		if context.Cause(l.a.calls) == nil {
			t.Error("calls to the store go on after the time is up")
		}
		j = testJob(l, 2)
		j.parts[1].holder.final = true // it may be in a dead letter, so it must not come again
		if err := l.giveUp(); err == nil || !strings.Contains(err.Error(), " 2 messages ") {
			t.Errorf("giveUp: %v, want that two messages are left", err)
		}
		for i, want := range []bool{true, false} {
			nacked := false
			select {
			case <-j.parts[i].holder.msg.Nacked():
				nacked = true
			default:
			}
			if nacked != want {
				t.Errorf("message %d given back: %v, want %v", i, nacked, want)
			}
		}
	})
}
