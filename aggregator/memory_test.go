package aggregator

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/countmill/countmill/internal/testing/longtest"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/wire"
)

// mostFactor times the bound is the largest heap that an aggregator may need.
const mostFactor = 1.5

// A farStore commits by a function, and never writes letters.
type farStore struct {
	nullStore
	fold func(context.Context, *store.Commit) error
}

func (s farStore) Fold(ctx context.Context, c *store.Commit) (store.CommitResult, error) {
	return store.CommitResult{}, s.fold(ctx, c)
}
func (s farStore) PutDeadLetters(ctx context.Context, _ []store.DeadLetter) error {
	return hangs(ctx, nil)
}

func hangs(ctx context.Context, _ *store.Commit) error {
	<-ctx.Done()
	return ctx.Err()
}

func works(context.Context, *store.Commit) error { return nil }

// onTopic is a message as a broker delivers it.
func onTopic(n int, payload []byte) *message.Message {
	m := message.NewMessage("", payload)
	m.Metadata.Set(wire.MetaBrokerID, fmt.Sprintf("%016d", n))
	m.Metadata.Set(wire.MetaPublished, time.Now().UTC().Format(time.RFC3339Nano))
	return m
}

// fullBatch has as many parts as a batch holds. part makes the ith.
func fullBatch(n int, part func(i int) wire.Part) *message.Message {
	now := time.Now()
	b := wire.Batch{Time: now}
	for size := 16; ; {
		p := part(len(b.Parts))
		if p.ID == (wire.PartID{}) {
			_, _ = rand.Read(p.ID[:])
		}
		if size += len(wire.Append(nil, &wire.Batch{Time: now, Parts: []wire.Part{p}})) - 10; size > wire.MaxBatch {
			return onTopic(n, wire.Append(nil, &b))
		}
		b.Parts = append(b.Parts, p)
	}
}

func identifiedParts(n int) *message.Message {
	return fullBatch(n, func(int) wire.Part {
		return wire.Part{Kind: wire.Identified, Entries: []wire.Entry{{Counter: "c", Delta: 1}}}
	})
}

// keyedParts is a request of increments with ids at the time at. Its head has that many entries,
// with names of 500 bytes.
func keyedParts(heads int, ahead time.Duration) func(n int) *message.Message {
	return func(n int) *message.Message {
		return fullBatch(n, func(i int) wire.Part {
			if i > 0 {
				p := wire.Part{Kind: wire.IdentifiedFollower, Request: 7, Entries: []wire.Entry{{Counter: "c", Delta: 1}}}
				if ahead > 0 {
					p.Time = time.Now().Add(ahead)
				}
				return p
			}
			head := wire.Part{Kind: wire.Head, Request: 7}
			for i := range heads {
				head.Entries = append(head.Entries, wire.Entry{Counter: fmt.Sprintf("%0500d", i), Delta: 1})
			}
			return head
		})
	}
}

// anonymousParts has parts of 24 entries, with that many counters and names of that many bytes.
func anonymousParts(counters, width int) func(n int) *message.Message {
	return func(n int) *message.Message {
		next := n << 16
		return fullBatch(n, func(int) wire.Part {
			var p wire.Part
			for range min(wire.MaxEntries, counters) {
				next++
				p.Entries = append(p.Entries, wire.Entry{Counter: fmt.Sprintf("%0*d", width, next%counters), Delta: 1})
			}
			return p
		})
	}
}

// jsonIDs is a message in JSON: increments with ids of that many bytes.
func jsonIDs(width int) func(n int) *message.Message {
	return func(n int) *message.Message {
		var b strings.Builder
		for i := 0; b.Len() < wire.MaxBatch-200; i++ {
			fmt.Fprintf(&b, `,{"counter":"c","id":"%0*d"}`, width, n*1e5+i)
		}
		return onTopic(n, []byte("["+b.String()[1:]+"]"))
	}
}

// TestHeldMemory fills aggregators whose store is unreachable until they take no more, and compares
// the heap with the bound. COUNTMILL_TEST_MEMORY sets the bound in MiB; the default setting is 256.
func TestHeldMemory(t *testing.T) {
	longtest.Only(t, "fills 16 heaps")
	atOnce := store.Limits{Keys: 1000, Commits: 1, Shards: 1}
	inPieces := store.Limits{Entities: 400, Keys: 1000, Commits: 4, Shards: 1}
	var copied []byte
	for name, c := range map[string]struct {
		limits store.Limits
		fold   func(context.Context, *store.Commit) error
		next   func(n int) *message.Message
	}{
		"ids":                          {inPieces, hangs, identifiedParts},
		"ids, in one commit":           {atOnce, hangs, identifiedParts},
		"ids of 4 bytes in JSON":       {inPieces, hangs, jsonIDs(4)},
		"ids of 128 bytes in JSON":     {inPieces, hangs, jsonIDs(128)},
		"ids in requests with a key":   {inPieces, hangs, keyedParts(0, 0)},
		"anonymous, short names":       {inPieces, hangs, anonymousParts(1e8, 8)},
		"anonymous, in one commit":     {atOnce, hangs, anonymousParts(1e8, 8)},
		"anonymous, names of 24 bytes": {inPieces, hangs, anonymousParts(1e8, 24)},
		"anonymous, long names":        {inPieces, hangs, anonymousParts(1e8, 500)},
		"anonymous, few counters":      {atOnce, hangs, anonymousParts(24, 20)},
		"one increment a message": {inPieces, hangs, func(n int) *message.Message {
			return onTopic(n, wire.Append(nil, &wire.Batch{Time: time.Now(), Parts: wire.CutAnonymous(rand.Reader, []wire.Entry{{Counter: "c", Delta: 1}})}))
		}},
		"copies": {inPieces, hangs, func(n int) *message.Message {
			if copied == nil {
				copied = identifiedParts(n).Payload
			}
			return onTopic(n, copied)
		}},
		"letters": {inPieces, works, func(n int) *message.Message {
			return fullBatch(n, func(int) wire.Part {
				return wire.Part{Kind: wire.Identified, Time: time.Now().Add(48 * time.Hour), Entries: []wire.Entry{{Counter: "c", Delta: 1}}}
			})
		}},
		"letters with copies of heads": {inPieces, works, keyedParts(24, 48*time.Hour)},
		"letters of small messages":    {inPieces, works, func(n int) *message.Message { return onTopic(n, fmt.Appendf(nil, "garbage%d", n)) }},
		"letters of large messages":    {inPieces, works, func(n int) *message.Message { return onTopic(n, make([]byte, wire.MaxBatch)) }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { measure(t, farStore{nullStore{c.limits}, c.fold}, c.next) })
		})
	}
}

func measure(t *testing.T, st Store, next func(n int) *message.Message) {
	bound := 32 << 20
	if mib, err := strconv.Atoi(os.Getenv("COUNTMILL_TEST_MEMORY")); err == nil {
		bound = mib << 20
	}
	window := bound
	if st.Limits().Entities == 0 {
		window /= 4 // as by default: one commit has all of a window
	}
	before, _ := heap()
	bus := make(chanBus)
	a, err := New(bus, st, Config{
		HeldMemory: bound, WindowMemory: window, WindowMessages: 1e6, WindowCounters: 1e8,
		Linger: time.Second, CommitTimeout: 1000 * time.Hour, HeartbeatEvery: time.Hour,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- a.Run(ctx) }()
	var messages, payload int
	enough := time.NewTimer(0)
	for idle := false; !idle; {
		m := next(messages)
		size := len(m.Payload)
		enough.Reset(5 * time.Second)
		select {
		case bus <- m:
			messages, payload = messages+1, payload+size
		case <-enough.C:
			idle = true
		}
	}
	after, peak := heap()
	s := a.Stats()
	factor := float64(after-before) / float64(bound)
	t.Logf("%6d messages of %5.1f MiB, %7d parts, %7d letters: heap %5.1f MiB (%.2f of the bound), %5.1f MiB from the system", messages,
		mebi(payload), s.Parts, s.WaitingDeadLetters, mebi(after-before), factor, mebi(peak))
	if factor > mostFactor {
		t.Errorf("the heap is %.2f times the bound, at most %.1f was to be", factor, mostFactor)
	}
	if s.HeldMemory < int64(2*window) && s.HeldMemory < int64(bound) {
		t.Errorf("no more is taken at %d bytes, which is below the bound", s.HeldMemory)
	}
	cancel()
	<-done
}

func mebi(n int) float64 { return float64(n) / (1 << 20) }

// heap returns how much of the heap is in use, and its size before the garbage was collected.
func heap() (used, had int) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	runtime.GC()
	runtime.GC() // the second collection empties the pools
	runtime.ReadMemStats(&after)
	return int(after.HeapAlloc), int(before.HeapSys - before.HeapReleased)
}
