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
		l.jobs = append(l.jobs, &job{parts: []*part{{at: time.Now()}}})
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
