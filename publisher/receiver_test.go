package publisher

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/go-cmp/cmp"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/wire"
)

// receiverTime is when the batches of these tests come in, and receiverWindow the deduplication window.
var receiverTime = time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)

const receiverWindow = 24 * time.Hour

func anonymous(id byte, counter string) wire.Part {
	return wire.Part{ID: wire.PartID{0x10, id}, Entries: []wire.Entry{{Counter: counter, Delta: 1}}}
}

func keyed(t *testing.T, principal, key string, incs ...countmill.Increment) []wire.Part {
	t.Helper()
	parts, err := wire.CutRequest(principal, key, incs)
	if err != nil {
		t.Fatal(err)
	}
	return parts
}

func batchAt(at time.Time, parts ...wire.Part) []byte {
	return wire.Append(nil, &wire.Batch{Time: at, Flush: wire.FlushID{7}, Parts: parts})
}

func batch(parts ...wire.Part) []byte { return batchAt(receiverTime, parts...) }

// A receiverBus keeps the message that it gets, and answers.
type receiverBus struct {
	got   *message.Message
	topic string
	reply []wire.Use
	err   error
}

func (b *receiverBus) Publish(topic string, messages ...*message.Message) error {
	b.topic, b.got = topic, messages[0]
	for _, use := range b.reply {
		wire.OfferedReply(b.got.Context()).Add(use)
	}
	return b.err
}

// pass sends a batch through a batch receiver, and returns the batch on the bus.
func pass(t *testing.T, bus *receiverBus, payload []byte, from Sender) (*wire.Batch, Outcome) {
	t.Helper()
	in, _, err := OpenBatch(payload, from, receiverTime, receiverWindow)
	if err != nil {
		t.Fatal(err)
	}
	out, err := NewBatchReceiver(bus, "", wire.DatabaseTag{1}).Send(t.Context(), in, receiverTime)
	if err != nil {
		t.Fatal(err)
	}
	if bus.got == nil {
		return nil, out
	}
	sent, err := wire.Decode(bus.got.Payload)
	if err != nil {
		t.Fatal(err)
	}
	return sent, out
}

// Anonymous ids of a limited sender are replaced, so that none meets another's.
func TestLimitedSendersHaveIDsOfTheirOwn(t *testing.T) {
	t.Parallel()
	payload := batch(anonymous(1, "page:a"), wire.CutIdentified(identified("page:a", "order-1", 2)))
	ids := make(map[wire.PartID]bool)
	for _, from := range []Sender{{}, {Name: "a"}, {Name: "a", Limited: true}, {Name: "b", Limited: true}} {
		for range 2 { // a repeat has the same id
			sent, _ := pass(t, new(receiverBus), payload, from)
			id := sent.Parts[0].ID
			if ids[id] = true; id.Class() != wire.AnonymousClass {
				t.Errorf("%+v: the id %s has class %d", from, id, id.Class())
			}
			if own := id == (wire.PartID{0x10, 1}); own == from.Limited {
				t.Errorf("%+v: the sender's own id was kept: %t", from, own)
			}
			if from.Limited && id != wire.SentID(from.Name, wire.PartID{0x10, 1}) {
				t.Errorf("%+v: got id %s", from, id)
			}
			if kept := sent.Flush == (wire.FlushID{7}); kept == from.Limited {
				t.Errorf("%+v: the sender's own flush, which names its completions, was kept: %t", from, kept)
			}
			if want := wire.IncrementID("page:a", "order-1"); sent.Parts[1].ID != want {
				t.Errorf("%+v: the id of an identified increment is %s, want %s", from, sent.Parts[1].ID, want)
			}
		}
	}
	if len(ids) != 3 {
		t.Errorf("got %d ids, want 3: the sender's own, and one for each limited sender", len(ids))
	}
}

// The receipt names the completion of the message on the bus, and not the one that the sender computes. A
// repeat gets the same receipt. Two limited senders with the same flush have different completions.
func TestReceiverReceipts(t *testing.T) {
	t.Parallel()
	flush := wire.FlushID{7}
	single := anonymous(1, "page:a")
	single.ID = flush.Hash().Single(3)
	old := wire.CutIdentified(countmill.Increment{Counter: "page:a", Delta: 1, ID: "old", Time: receiverTime.Add(-2 * receiverWindow)})
	for name, parts := range map[string][]wire.Part{
		"single":     {single},
		"two parts":  {single, wire.CutIdentified(identified("page:a", "order-1", 2))},
		"one left":   {single, old},
		"not single": {anonymous(1, "page:a")},
	} {
		payload := wire.Append(nil, &wire.Batch{Time: receiverTime, Flush: flush, Number: 3, Parts: parts})
		receipts := make(map[string]bool)
		for _, from := range []Sender{{}, {Name: "a"}, {Name: "a", Limited: true}, {Name: "b", Limited: true}} {
			for range 2 {
				bus := &completionBus{completions: make(map[wire.PartID]map[string]bool)}
				in, _, err := OpenBatch(payload, from, receiverTime, receiverWindow)
				must(t, err)
				out, err := NewBatchReceiver(bus, "", wire.TagOf("db")).Send(t.Context(), in, receiverTime)
				must(t, err)
				r := out.Sent.Receipt
				receipts[r.String()] = true
				if out.Sent.Counted || r.Messages() != 1 || !bus.has(t, r, "page:a") || !r.Time.Equal(receiverTime) || r.Database != wire.TagOf("db") {
					t.Errorf("%s of %+v: %+v", name, from, out.Sent)
				}
				_, alone := bus.completions[flush.Hash().Single(3)]
				_, apart := bus.completions[flush.Hash().Completion(3)]
				if own := alone || apart; own == from.Limited {
					t.Errorf("%s of %+v: the completion that the sender computes was kept: %t", name, from, own)
				}
				if want := name == "single" || name == "one left" && !from.Limited; want != (bus.single == 1) {
					t.Errorf("%s of %+v: the part is its own completion: %t, want %t", name, from, bus.single == 1, want)
				}
			}
		}
		if len(receipts) != 3 {
			t.Errorf("%s: got %d receipts, want 3: the sender's own, and one for each limited sender", name, len(receipts))
		}
	}
}

// A batch without a flush has no completion, and one without parts nothing to wait for. A bus that counts says so.
func TestReceiverWithoutAReceipt(t *testing.T) {
	t.Parallel()
	unflushed := wire.Append(nil, &wire.Batch{Time: receiverTime, Parts: []wire.Part{anonymous(1, "a")}})
	if _, out := pass(t, new(receiverBus), unflushed, Sender{Name: "a", Limited: true}); !out.Sent.Receipt.IsZero() {
		t.Errorf("a batch without a flush: got %+v", out.Sent)
	}
	old := countmill.Increment{Counter: "a", Delta: 1, ID: "x", Time: receiverTime.Add(-2 * receiverWindow)}
	if _, out := pass(t, new(receiverBus), batch(wire.CutIdentified(old)), Sender{}); out.Sent.Receipt.IsZero() || out.Sent.Receipt.Messages() != 0 {
		t.Errorf("a batch of an expired part alone: got %+v, want a receipt of nothing", out.Sent)
	}
	for _, count := range []bool{true, false} {
		in, _, err := OpenBatch(batch(anonymous(1, "a")), Sender{}, receiverTime, receiverWindow)
		must(t, err)
		out, err := NewBatchReceiver(replyingBus(count), "", wire.DatabaseTag{}).Send(t.Context(), in, receiverTime)
		if must(t, err); out.Sent.Counted != count || !out.Sent.Receipt.IsZero() {
			t.Errorf("counted %t: got %+v", count, out.Sent)
		}
	}
}

// A key belongs to the caller: another principal is refused, and none becomes the caller's.
func TestKeysAreTheCallers(t *testing.T) {
	t.Parallel()
	incs := make([]countmill.Increment, 60) // three parts
	for i := range incs {
		incs[i] = countmill.Increment{Counter: fmt.Sprint("c", i), Delta: 1}
	}
	for _, tc := range []struct {
		principal, caller string
		ok                bool
	}{{"", "", true}, {"", "web", true}, {"web", "web", true}, {"shop", "web", false}, {"web", "", false}} {
		payload := batch(keyed(t, tc.principal, "k", incs...)...)
		in, _, err := OpenBatch(payload, Sender{Name: tc.caller}, receiverTime, receiverWindow)
		if tc.ok != (err == nil) || !tc.ok && !errors.Is(err, ErrOtherPrincipal) {
			t.Errorf("principal %q by %q: got %v", tc.principal, tc.caller, err)
		}
		if err != nil {
			continue
		}
		b, err := wire.Decode(in.payload)
		if err != nil {
			t.Fatal(err)
		}
		for i, want := range keyed(t, tc.caller, "k", incs...) {
			if b.Parts[i].ID != want.ID {
				t.Errorf("principal %q by %q: part %d has id %s, want %s", tc.principal, tc.caller, i, b.Parts[i].ID, want.ID)
			}
		}
	}
}

// No sender can put an id on the wire that belongs to a name, or to a dead letter.
func TestIDsOnTheWireAreRefused(t *testing.T) {
	t.Parallel()
	for name, p := range map[string]wire.Part{
		"an increment's": {Kind: wire.Anonymous, ID: wire.IncrementID("a", "x"), Entries: []wire.Entry{{Counter: "a", Delta: 1}}},
		"a key's":        {Kind: wire.Anonymous, ID: wire.KeyID("", "k", 0), Entries: []wire.Entry{{Counter: "a", Delta: 1}}},
		"a message's":    {Kind: wire.Foreign, ID: wire.MessageID("t", "1", 0), Entries: []wire.Entry{{Counter: "a", Delta: 1}}},
		"a renewed one":  {Kind: wire.Renewed, ID: wire.RenewedOf(wire.PartID{}, 0), Entries: []wire.Entry{{Counter: "a", Delta: 1}}},
	} {
		if _, _, err := OpenBatch(batch(anonymous(1, "a"), p), Sender{}, receiverTime, receiverWindow); !errors.Is(err, countmill.ErrInvalid) {
			t.Errorf("%s: got %v, want ErrInvalid", name, err)
		}
	}
}

// A batch before the window, or over an hour ahead, is refused whole.
func TestClockSkew(t *testing.T) {
	t.Parallel()
	old := wire.CutIdentified(countmill.Increment{Counter: "a", Delta: 1, ID: "x"})
	for _, tc := range []struct {
		batch, part time.Duration // from receiverTime; part 0: none
		ok          bool
	}{
		{0, 0, true}, {-receiverWindow, 0, true}, {-receiverWindow - time.Microsecond, 0, false},
		{time.Hour, 0, true}, {time.Hour + time.Microsecond, 0, false},
		{0, time.Hour, true}, {0, time.Hour + time.Microsecond, false}, {0, -receiverWindow - time.Hour, true},
	} {
		p := old
		if tc.part != 0 {
			p.Time = receiverTime.Add(tc.part)
		}
		_, _, err := OpenBatch(batchAt(receiverTime.Add(tc.batch), anonymous(1, "a"), p), Sender{}, receiverTime, receiverWindow)
		if tc.ok != (err == nil) || err != nil && !errors.Is(err, ErrClockSkew) {
			t.Errorf("batch at %s, part at %s: got %v, want refused: %t", tc.batch, tc.part, err, !tc.ok)
		}
	}
}

// Only a sender who may count in the past chooses minutes long before the window. A request that was long on its
// way keeps its own.
func TestOnlySomeSendersCountInThePast(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		age  time.Duration
		past bool
		kept bool
	}{{receiverWindow, false, true}, {receiverWindow + 23*time.Hour, false, true}, {receiverWindow + 25*time.Hour, false, false}, {1000 * receiverWindow, true, true}} {
		p := anonymous(1, "a")
		p.Minute = wire.MinuteOf(receiverTime.Add(-tc.age))
		sent, _ := pass(t, new(receiverBus), batch(anonymous(2, "a"), p), Sender{Past: tc.past})
		want := wire.MinuteOf(receiverTime)
		if tc.kept {
			want = p.Minute
		}
		if got := sent.Minute(&sent.Parts[1]); got != want {
			t.Errorf("%s ago, past %t: counts at %s, want %s", tc.age, tc.past, got.Time(), want.Time())
		}
	}
}

// A batch says in its first part how many increments it has, and is not believed to have very many.
func TestReceiverBoundsMergedIncrements(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ first, second, want int64 }{{1000, 0, 1000}, {wire.MaxIncrements, 0, maxMerged}, {2, wire.MaxIncrements, 2}} {
		parts := []wire.Part{anonymous(1, "a"), anonymous(2, "a")}
		parts[0].Increments, parts[1].Increments = tc.first, tc.second
		sent, _ := pass(t, new(receiverBus), batch(parts...), Sender{})
		if got := sent.Parts[0].CountIncrements() + sent.Parts[1].CountIncrements(); got != tc.want+1 {
			t.Errorf("%d and %d: got %d increments, want %d", tc.first, tc.second, got, tc.want+1)
		}
	}
}

// A part of its own time that is before the window is not counted, and named. A head takes all that
// follows it along. Places are those of the batch as it came.
func TestExpiredPartsAreNamed(t *testing.T) {
	t.Parallel()
	late := receiverTime.Add(-receiverWindow - time.Minute)
	parts := []wire.Part{anonymous(1, "a"), wire.CutIdentified(countmill.Increment{Counter: "a", Delta: 1, ID: "old", Time: late})}
	parts = append(parts, keyed(t, "", "old",
		countmill.Increment{Counter: "b", Delta: 1, Time: late}, countmill.Increment{Counter: "b", Delta: 1, ID: "x"})...)
	parts = append(parts, keyed(t, "", "new", countmill.Increment{Counter: "c", Delta: 1, Time: receiverTime}, countmill.Increment{Counter: "c", Delta: 1, ID: "y", Time: late})...)
	last := wire.CutIdentified(identified("d", "z", 1))
	parts = append(parts, last)
	bus := &receiverBus{reply: []wire.Use{{ID: last.ID, Fingerprint: last.Fingerprint()}}}
	sent, out := pass(t, bus, batch(parts...), Sender{})
	var got []string
	for _, p := range sent.Parts {
		got = append(got, p.Kind.String())
	}
	if diff := cmp.Diff([]string{"anonymous", "head", "identified"}, got); diff != "" {
		t.Errorf("on the bus (-want +got):\n%s", diff)
	}
	receipt := wire.Receipt{Database: wire.DatabaseTag{1}, Time: receiverTime, Spans: []wire.Span{{Flush: wire.FlushID{7}.Hash()}}}
	if diff := cmp.Diff(Outcome{Sent: Sent{Receipt: receipt}, Parts: 7, Reused: []int{6}, Expired: []int{1, 2, 3, 5}}, out); diff != "" {
		t.Errorf("outcome (-want +got):\n%s", diff)
	}
	bus = new(receiverBus)
	if _, out := pass(t, bus, batch(parts[1]), Sender{}); bus.got != nil || !slices.Equal(out.Expired, []int{0}) {
		t.Errorf("a batch of an expired part alone: got %+v, and a message: %t", out, bus.got != nil)
	}
}

// The message says when it came in. It may come again, so its parts need markers.
func TestReceiverStampsAndMarks(t *testing.T) {
	t.Parallel()
	bus := new(receiverBus)
	pass(t, bus, batch(anonymous(1, "a")), Sender{})
	if got := bus.got.Metadata.Get(wire.MetaPublished); got != "2026-11-23T12:00:00Z" {
		t.Errorf("it came in at %q", got)
	}
	if wire.OfferedOnce(bus.got.Context()) {
		t.Error("the message says that it comes once")
	}
	if bus.topic != defaultTopic || bus.got.UUID != (wire.FlushID{7}).MessageUUID(0) {
		t.Errorf("got topic %q and UUID %q", bus.topic, bus.got.UUID)
	}
}

// Every copy of a part that was not counted is named.
func TestReusedPartsAreNamed(t *testing.T) {
	t.Parallel()
	x, y := wire.CutIdentified(identified("a", "x", 1)), wire.CutIdentified(identified("a", "y", 1))
	all := []wire.Part{anonymous(1, "a"), x, y, x, anonymous(2, "a")}
	own := all[4]
	own.ID = wire.SentID("web", own.ID)
	bus := &receiverBus{reply: []wire.Use{{ID: x.ID, Fingerprint: x.Fingerprint()}, {ID: own.ID, Fingerprint: own.Fingerprint()}}}
	if _, out := pass(t, bus, batch(all...), Sender{Name: "web", Limited: true}); !slices.Equal(out.Reused, []int{1, 3, 4}) {
		t.Errorf("got %+v, want parts 1, 3 and 4", out)
	}
}

// The sender's name makes some batches larger than a bus need take. They go in several messages, with a receipt of all.
// A repeat has the same messages.
func TestBatchesThatGrowAreCut(t *testing.T) {
	t.Parallel()
	incs := make([]countmill.Increment, 15_000)
	var identifieds, heads []wire.Part
	for i := range incs {
		incs[i] = identified("a", fmt.Sprint("id-", i), 1)
		identifieds = append(identifieds, wire.CutIdentified(incs[i]))
		heads = append(heads, keyed(t, "", fmt.Sprint(i), inc("a", 1))...)
	}
	for name, parts := range map[string][]wire.Part{"identified": identifieds, "heads": heads, "a keyed request": keyed(t, "", "k", incs...)} {
		in, _, err := OpenBatch(batch(parts...), Sender{Name: strings.Repeat("n", 64), Journal: func(string) bool { return true }}, receiverTime, receiverWindow)
		must(t, err)
		bus, last := newBus(t), parts[len(parts)-1]
		bus.answer = func(_ int, m *message.Message) (bool, error) {
			wire.OfferedReply(m.Context()).Add(wire.Use{ID: last.ID, Fingerprint: last.Fingerprint()})
			return true, nil
		}
		receiver := NewBatchReceiver(bus, "", wire.TagOf("db"))
		for range 2 {
			out, err := receiver.Send(t.Context(), in, receiverTime)
			must(t, err)
			if len(bus.parts) != len(parts) || len(bus.payloads) < 3 || out.Parts != len(parts) {
				t.Errorf("%s: %d parts in %d messages, want %d in several", name, len(bus.parts), len(bus.payloads), len(parts))
			}
			if want := last.Kind != wire.Head; want != slices.Equal(out.Reused, []int{len(parts) - 1}) { // a head has another id with the name
				t.Errorf("%s: parts %d were not counted, want the last one: %t", name, out.Reused, want)
			}
			named := out.Sent.Receipt.Completions()
			for _, b := range bus.batches {
				if !slices.Contains(named, b.Flush.Hash().Completion(b.Number)) || len(named) != len(bus.payloads) || out.Sent.Receipt.Database != wire.TagOf("db") {
					t.Errorf("%s: the receipt %+v lacks message %d", name, out.Sent.Receipt, b.Number)
				}
			}
		}
		bus.answer = func(call int, _ *message.Message) (bool, error) {
			if call%2 == 0 {
				return true, nil
			}
			return false, countmill.ErrUnavailable
		}
		bus.calls = 0
		if _, err := receiver.Send(t.Context(), in, receiverTime); !errors.Is(err, countmill.ErrOutcomeUnknown) {
			t.Errorf("%s: an error after the first message: got %v", name, err)
		}
	}
}

func TestReceiverErrors(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ err, want error }{
		{fmt.Errorf("%w: no room", countmill.ErrUnavailable), countmill.ErrUnavailable},
		{errors.New("nacked"), countmill.ErrOutcomeUnknown},
		{countmill.ErrClosed, countmill.ErrOutcomeUnknown},
		{fmt.Errorf("%w: %w", countmill.ErrOutcomeUnknown, countmill.ErrUnavailable), countmill.ErrOutcomeUnknown},
		{context.DeadlineExceeded, countmill.ErrOutcomeUnknown},
	} {
		in, _, err := OpenBatch(batch(anonymous(1, "a")), Sender{}, receiverTime, receiverWindow)
		if err != nil {
			t.Fatal(err)
		}
		_, err = NewBatchReceiver(&receiverBus{err: tc.err}, "t", wire.DatabaseTag{}).Send(t.Context(), in, receiverTime)
		unknown := errors.Is(err, countmill.ErrOutcomeUnknown)
		if !errors.Is(err, tc.want) || errors.Is(err, countmill.ErrClosed) || unknown != errors.Is(tc.want, countmill.ErrOutcomeUnknown) {
			t.Errorf("%v: got %v, want %v", tc.err, err, tc.want)
		}
	}
}
