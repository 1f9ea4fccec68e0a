package aggregator

import (
	"strings"
	"testing"
	"time"

	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/wire"
)

// aDeadLetter is a letter about a part of one entry.
func aDeadLetter(id byte, counter string, at time.Time) *deadLetter {
	p := &part{at: at, from: at, holder: &held{time: at}, Part: wire.Part{
		ID: wire.PartID{byte(wire.AnonymousClass) << 4, id}, Entries: []wire.Entry{{Counter: counter, Delta: 1}}}}
	return &deadLetter{dead: store.DeadLetter{Time: at, Reason: "r"}, parts: []*part{p}, holders: []*held{p.holder}}
}

// A letter's time is compared with the window, so it must be that of its oldest part.
func TestAJoinedDeadLetterHasTheOldestTimeAndEachPartOnce(t *testing.T) {
	t.Parallel()
	at := time.Now().Truncate(time.Microsecond)
	old := at.Add(-time.Hour)
	d := joined([]*deadLetter{aDeadLetter(1, "a", at), aDeadLetter(2, "b", old), aDeadLetter(1, "a", at), aDeadLetter(3, "c", at)})
	if !d.Time.Equal(old) {
		t.Errorf("the letter is of %s, want %s", d.Time, old)
	}
	b, err := wire.Decode(d.Payload)
	if err != nil || len(b.Parts) != 3 {
		t.Fatalf("got %+v, %v; want three parts", b, err)
	}
	for i, want := range []time.Time{at, old, at} {
		if got := b.Parts[i].Time; !got.Equal(want) && !(got.IsZero() && b.Time.Equal(want)) {
			t.Errorf("part %d is of %s in a batch of %s, want %s", i, got, b.Time, want)
		}
	}
}

func TestAJoinedDeadLetterIsNoLargerThanABatch(t *testing.T) {
	t.Parallel()
	large := func(id byte) *deadLetter {
		d := aDeadLetter(id, strings.Repeat("n", 1000), time.Now())
		for range 300 {
			d.parts[0].Entries = append(d.parts[0].Entries, d.parts[0].Entries[0])
		}
		return d
	}
	var j joint
	if !j.takes(large(1)) || j.takes(large(2)) || !j.takes(aDeadLetter(3, "a", time.Now())) {
		t.Errorf("%d letters of %d bytes were joined, want a large and a small one", j.letters, j.bytes)
	}
	if j.letters != 2 || j.bytes > wire.MaxBatch {
		t.Errorf("%d letters of %d bytes are one, want 2 with at most %d", j.letters, j.bytes, wire.MaxBatch)
	}
}

// A replayed letter that cannot be counted keeps its key. In a joined letter it would have
// another key, and a second request for it would be lost.
func TestAReplayedDeadLetterIsNotJoined(t *testing.T) {
	t.Parallel()
	asked := aDeadLetter(2, "b", time.Now())
	asked.holders[0].letter = store.ReplayKey("k")
	l := loop{a: &Aggregator{cfg: Config{DeadLetterRate: 1}}}
	l.letters = []*deadLetter{aDeadLetter(1, "a", time.Now()), asked, aDeadLetter(3, "c", time.Now())}
	batch := l.nextDeadLetters(10)
	if len(batch) != 2 || len(batch[0]) != 2 || len(batch[1]) != 1 || batch[1][0] != asked {
		t.Errorf("the letters are written as %v, want the first and the last as one", batch)
	}
}
