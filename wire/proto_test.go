package wire

import (
	crand "crypto/rand"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/wire/internal/batchpb"
)

// everyKind is a batch with a part of every kind and entries at their limits.
func everyKind(t testing.TB) *Batch {
	t.Helper()
	incs := []countmill.Increment{
		{Counter: "é/日本", Delta: countmill.MaxDelta, Time: epoch.Add(-time.Hour)},
		{Counter: "seen", Delta: 1, ID: "event-1", Time: epoch},
	}
	for i := range 2 * MaxEntries {
		incs = append(incs, countmill.Increment{Counter: fmt.Sprint("page:/", i), Delta: int64(-i - 1)})
	}
	keyed, err := CutRequest("principal", "order-1", incs)
	if err != nil {
		t.Fatal(err)
	}
	b := &Batch{Time: epoch, Flush: FlushID{1, 2, 3}, Number: 7}
	b.Parts = []Part{{ID: anyID, Minute: MinuteOf(epoch) + 1, Entries: []Entry{{"least", -MaxSum}, {"most", MaxSum}}, Increments: 1_000_000}}
	b.Parts = append(b.Parts, CutIdentified(countmill.Increment{Counter: "a", Delta: 3, ID: "x", Time: epoch}))
	b.Parts = append(b.Parts, keyed...)
	b.Parts = append(b.Parts, Part{ID: KeyID("", "empty", 0), Kind: Head, Request: 7, Key: &Key{"", "empty"}})
	b.Parts = append(b.Parts,
		Part{ID: MessageID("topic", "7", 0), Kind: Foreign, Entries: []Entry{{"f", 1}}},
		Part{ID: RenewedOf(b.Parts[0].ID, b.Parts[0].Fingerprint()), Kind: Renewed, Entries: []Entry{{"g", 1}}})
	return b
}

// toProto makes the message that a program with generated code would send.
func toProto(b *Batch) *batchpb.Batch {
	m := &batchpb.Batch{Version: Version, TimeUs: b.Time.UnixMicro(), Number: uint32(b.Number), Parts: make([]*batchpb.Part, len(b.Parts))}
	if b.Flush != (FlushID{}) {
		m.Flush = b.Flush[:]
	}
	for i := range b.Parts {
		p := &b.Parts[i]
		q := &batchpb.Part{
			Kind: uint32(p.Kind), Request: uint64(p.Request), Minute: int64(p.Minute), Event: p.Event, Number: uint32(p.Number), Sender: p.Sender, Increments: p.Increments,
		}
		if p.Kind.carriesID() {
			q.Id = p.ID[:]
		}
		if p.Key != nil {
			q.Principal, q.Key = p.Key.Principal, p.Key.Key
		}
		if !p.Time.IsZero() {
			q.TimeUs = p.Time.UnixMicro()
		}
		q.Entries = make([]*batchpb.Entry, len(p.Entries))
		for j, e := range p.Entries {
			q.Entries[j] = &batchpb.Entry{Counter: e.Counter, Delta: e.Delta}
		}
		m.Parts[i] = q
	}
	return m
}

// fromProto makes a Batch of what generated code read, without checking it.
func fromProto(m *batchpb.Batch) *Batch {
	b := &Batch{Time: time.UnixMicro(m.GetTimeUs()), Number: int(m.GetNumber()), Parts: make([]Part, len(m.GetParts()))}
	copy(b.Flush[:], m.GetFlush())
	for i, q := range m.GetParts() {
		p := &b.Parts[i]
		copy(p.ID[:], q.GetId())
		p.Kind, p.Request = Kind(q.GetKind()), Fingerprint(q.GetRequest())
		p.Minute, p.Event, p.Number = Minute(q.GetMinute()), q.GetEvent(), int32(q.GetNumber())
		p.Sender, p.Increments = q.GetSender(), q.GetIncrements()
		if p.Kind == Head {
			p.Key = &Key{q.GetPrincipal(), q.GetKey()}
		}
		if q.GetTimeUs() != 0 {
			p.Time = time.UnixMicro(q.GetTimeUs())
		}
		p.Entries = make([]Entry, len(q.GetEntries()))
		for j, e := range q.GetEntries() {
			p.Entries[j] = Entry{e.GetCounter(), e.GetDelta()}
		}
	}
	return b
}

// carried is the batch without the ids that Decode computes.
func carried(b *Batch) *Batch {
	c := *b
	c.Parts = slices.Clone(b.Parts)
	for i := range c.Parts {
		if !c.Parts[i].Kind.carriesID() {
			c.Parts[i].ID = PartID{}
		}
	}
	return &c
}

var sameBatch = cmp.Options{
	cmp.Comparer(func(a, b time.Time) bool { return a.Equal(b) }),
	cmp.Transformer("entries", func(es []Entry) string { return fmt.Sprint(es) }), // nil and empty are one
}

// benchBatch is an ordinary batch: 10,000 entries of anonymous parts, with names of
// some 20 bytes and small deltas.
func benchBatch() *Batch {
	r := rand.New(rand.NewPCG(1, 2))
	entries := make([]Entry, 10_000)
	for i := range entries {
		entries[i] = Entry{fmt.Sprintf("page:/products/%06d", i), 1 + r.Int64N(500)}
	}
	SortEntries(entries)
	return &Batch{Time: epoch, Parts: CutAnonymous(crand.Reader, entries)}
}

// wire checks every name, delta, kind and head while it decodes; generated code checks
// only that names are UTF-8.
func BenchmarkDecode(b *testing.B) {
	batch := benchBatch()
	payload := Append(nil, batch)
	for _, bm := range []struct {
		name string
		run  func() error
	}{
		{"wire", func() error { _, err := Decode(payload); return err }},
		{"generated", func() error { return proto.Unmarshal(payload, new(batchpb.Batch)) }},
	} {
		b.Run(bm.name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(payload)))
			for b.Loop() {
				if err := bm.run(); err != nil {
					b.Fatal(err)
				}
			}
			perEntry(b, batch)
		})
	}
}

func perEntry(b *testing.B, batch *Batch) {
	b.Helper()
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(batch.Entries()), "ns/entry")
}

// Generated code and this package write the same bytes for parts of every kind, and Decode reads them. A sender
// changes no id and no fingerprint.
func TestGeneratedCodeAgrees(t *testing.T) {
	t.Parallel()
	plain, want := everyKind(t), everyKind(t)
	size := len(appendHeader(nil, want))
	for i := range want.Parts {
		want.Parts[i].Sender = fmt.Sprint("sender ", i)
		size += SizePart(&want.Parts[i])
	}
	payload, err := proto.Marshal(toProto(want))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(payload, Append(nil, want)); diff != "" || size != len(payload) {
		t.Errorf("Append and generated code write different bytes, and %d are announced (-generated +Append):\n%s", size, diff)
	}
	got, err := Decode(payload)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got, sameBatch); diff != "" {
		t.Errorf("Decode reads another batch (-wrote +read):\n%s", diff)
	}
	for i := range got.Parts {
		if p, was := &got.Parts[i], &plain.Parts[i]; p.ID != was.ID || p.Fingerprint() != was.Fingerprint() {
			t.Errorf("part %d has id %s and fingerprint %d with a sender, want %s and %d", i, p.ID, p.Fingerprint(), was.ID, was.Fingerprint())
		}
	}
}
