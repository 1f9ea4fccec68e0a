package aggregator_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/countmill/countmill/aggregator"
	"github.com/countmill/countmill/wire"
)

// partField is the number of Batch.parts in batch.proto.
const partField = 7

// forged is a batch with a part of these fields, which package wire cannot encode.
func forged(fields ...[]byte) []byte {
	header := wire.Append(nil, &wire.Batch{Time: time.Now()})
	var part []byte
	for _, f := range fields {
		part = append(part, f...)
	}
	return protowire.AppendBytes(protowire.AppendTag(header, partField, protowire.BytesType), part)
}

func field(number protowire.Number, content []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(nil, number, protowire.BytesType), content)
}

func number(field protowire.Number, v uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(nil, field, protowire.VarintType), v)
}

// wantRefused checks that the message became a dead letter and nothing of it was counted.
func (r *rig) wantRefused(t *testing.T, name, reason string, payload []byte) {
	t.Helper()
	before := len(r.store.DeadLetters())
	r.sendBytes(t, payload)
	settle(time.Minute)
	letters := r.store.DeadLetters()
	if len(letters) != before+1 {
		t.Errorf("%s: %d dead letters more, want 1", name, len(letters)-before)
		return
	}
	for _, d := range letters {
		if string(d.Payload) == string(payload) && strings.Contains(d.Reason, reason) {
			return
		}
	}
	t.Errorf("%s: no dead letter says %q: %v", name, reason, r.reasons())
}

// A sender that knows the key of another sender's request, or the id of its increment, can guess
// the id of the part. It must not send another part under this id: then the request would count
// as a repeat, and be lost.
func TestASenderCannotTakeTheIDOfAnothersPart(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := run(t, large(t), aggregator.Config{})
		request, increment := keyed(t, "their key", 30, 7), identified("their id", 9)
		entry := append(field(1, []byte("page:mine")), number(2, 2)...)
		for _, victim := range []wire.Part{request[0], request[1], increment} {
			id := victim.ID
			r.wantRefused(t, "anonymous", "class", forged(field(1, id[:]), field(11, entry)))
			r.wantRefused(t, "identified", "id on the wire", forged(field(1, id[:]), number(2, 1), field(6, []byte("mine")), field(11, entry)))
			r.wantRefused(t, "foreign", "class", forged(field(1, id[:]), number(2, 5), field(11, entry)))
			r.wantRefused(t, "renewed", "class", forged(field(1, id[:]), number(2, 6), field(11, entry)))
		}
		r.send(t, request...)
		r.send(t, increment)
		settle(time.Minute)
		want := map[string]int64{"a": 9}
		for i := range 30 {
			want[fmt.Sprint("c", i)] = 7
		}
		r.want(t, want)
	})
}

// Only dead letters have such parts. On a bus nobody could check where their ids come from.
func TestPartsOfDeadLettersAreRefusedFromABus(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := run(t, large(t), aggregator.Config{})
		first := anonymous(one("a", 1))
		for _, p := range []wire.Part{
			{Kind: wire.Foreign, ID: wire.MessageID("topic", "1", 0), Entries: first.Entries},
			{Kind: wire.Renewed, ID: wire.RenewedID(&first), Entries: first.Entries},
		} {
			r.wantRefused(t, p.Kind.String(), "on a bus", wire.Append(nil, &wire.Batch{Time: time.Now(), Parts: []wire.Part{p}}))
		}
		r.want(t, map[string]int64{})
	})
}

// One request of 48 counters, cut at 24 by one program and at 12 by another: the second has the
// ids of the first's parts, and two of its own. The size is in its fingerprint, so its head is refused with all of it.
func TestARequestThatIsCutAtTwoSizesCountsOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := run(t, large(t), aggregator.Config{})
		right := keyed(t, "k", 48, 1)
		r.send(t, right...)
		settle(time.Minute)
		var entries []wire.Entry
		for _, p := range right {
			entries = append(entries, p.Entries...)
		}
		var wrong []wire.Part
		for n := range 4 {
			p := right[min(n, 1)]
			p.ID, p.Number, p.Entries, p.Request = wire.KeyID("", "k", n), int32(n), entries[12*n:12*n+12], p.Request+12
			if n == 0 {
				p.Number = 3
			}
			wrong = append(wrong, p)
		}
		r.send(t, wrong...)
		settle(time.Minute)
		want := map[string]int64{}
		for i := range 48 {
			want[fmt.Sprint("c", i)] = 1
		}
		r.want(t, want)
	})
}

// A head may claim any number of followers. No memory is allocated for followers that are absent.
func TestAHeadThatClaimsManyPartsTakesNoRoom(t *testing.T) {
	alone(t, func(t *testing.T) {
		r := run(t, large(t), aggregator.Config{})
		parts := keyed(t, "k", 48, 1)
		parts[0].Number = 1 << 26
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before) // of the whole process
		m := r.send(t, parts...)
		settle(time.Minute)
		runtime.ReadMemStats(&after)
		if took := (after.TotalAlloc - before.TotalAlloc) >> 20; took > 100 {
			t.Errorf("a message of two parts took %d MiB", took)
		}
		if !acked(m) || r.store.Total("c0") != 1 || r.store.Total("c47") != 1 {
			t.Errorf("acknowledged %t, totals %v; want each counter at 1", acked(m), r.store.Totals())
		}
	})
}
