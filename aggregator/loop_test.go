package aggregator

import (
	"testing"
	"time"
)

// A job that has left the queue must not stay in memory in the queue's array: it holds
// the payloads of its messages.
func TestTheQueueKeepsNoJobThatHasLeftIt(t *testing.T) {
	t.Parallel()
	a, err := New(make(chanBus), nullStore{Limits{Keys: 1, Commits: 1, Shards: 1}}, Config{})
	if err != nil {
		t.Fatal(err)
	}
	l := newLoop(a)
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
