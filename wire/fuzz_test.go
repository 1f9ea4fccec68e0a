package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
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

// FuzzDecode: a batch is refused, or generated code reads the same batch, and so does Decode
// after Append.
func FuzzDecode(f *testing.F) {
	f.Add(Append(nil, &Batch{Time: epoch, Parts: []Part{{Entries: []Entry{{"a", 1}, {"b", -4}}}}}))
	f.Add([]byte{8, 1, 16, 1})
	request, err := CutRequest("", "k", []countmill.Increment{{Counter: "a", Delta: 1, Time: epoch}, {Counter: "é", Delta: -9, ID: "x"}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(Append(nil, &Batch{Time: epoch, Parts: request}))
	f.Add(Append(nil, &Batch{Time: epoch, Parts: []Part{{Time: time.UnixMicro(0), Entries: []Entry{{"a", 1}}}}}))
	f.Fuzz(func(t *testing.T, payload []byte) {
		b, err := Decode(payload)
		if err != nil {
			if _, newer := errors.AsType[NewerError](err); !newer && !errors.Is(err, countmill.ErrInvalid) {
				t.Fatalf("error %v of type %T, want a NewerError or ErrInvalid", err, err)
			}
			return
		}
		var m batchpb.Batch
		if err := proto.Unmarshal(payload, &m); err != nil {
			t.Fatalf("taken as %v, generated code says: %v", b, err)
		}
		if diff := cmp.Diff(carried(b), fromProto(&m), sameBatch); diff != "" {
			t.Fatalf("generated code reads another batch (-Decode +generated):\n%s", diff)
		}
		again, err := Decode(Append(nil, b))
		if err != nil {
			t.Fatalf("re-encoded batch: %v", err)
		}
		if diff := cmp.Diff(b, again, sameBatch); diff != "" {
			t.Fatalf("re-encoded batch (-first +second):\n%s", diff)
		}
	})
}

// increments makes increments of any bytes: four say which name, delta, id and time, and
// whether names are long.
func increments(text []byte) []countmill.Increment {
	var incs []countmill.Increment
	for ; len(text) >= 4; text = text[4:] {
		inc := countmill.Increment{Counter: fmt.Sprintf("c%d", text[0]), Delta: int64(int8(text[1]))<<(text[2]%40) | 1}
		if text[2]&0x80 != 0 {
			inc.Counter += string(bytes.Repeat([]byte("é"), int(text[0])/2))
		}
		if text[3]&3 == 0 {
			inc.ID = fmt.Sprint("id", text[3]>>4)
		}
		if text[3]&4 != 0 {
			inc.Time = epoch.Add(-time.Duration(text[3]) * time.Minute)
		}
		incs = append(incs, inc)
	}
	return incs
}

// FuzzEncode: every request that is cut, packed and decoded gives the same parts, each once
// except heads, in batches within the limit. Generated code writes the same bytes.
func FuzzEncode(f *testing.F) {
	f.Add([]byte("abcdefgh"), uint16(0))
	f.Add(bytes.Repeat([]byte{1, 2, 0x83, 4, 5, 6, 7, 1}, 40), uint16(900))
	many := make([]byte, 0, 4*900)
	for i := range uint32(900) {
		many = binary.LittleEndian.AppendUint32(many, i*0x9e3779b9)
	}
	f.Add(many, uint16(0))
	f.Fuzz(func(t *testing.T, text []byte, extra uint16) {
		parts, err := CutRequest("p", "k", increments(text))
		if err != nil {
			if !errors.Is(err, countmill.ErrInvalid) {
				t.Fatalf("error %v, want ErrInvalid", err)
			}
			return
		}
		limit := 2*(13<<10+100) + int(extra) // a head and one part always fit
		seen := make(map[PartID]Part)
		messages, _ := Pack(epoch, FlushID{1}, parts, limit)
		for i, payload := range messages {
			b, err := Decode(payload)
			if err != nil || len(payload) > limit {
				t.Fatalf("batch %d of %d bytes, limit %d: %v", i, len(payload), limit, err)
			}
			generated, err := proto.Marshal(toProto(b))
			if err != nil || !bytes.Equal(generated, payload) {
				t.Fatalf("batch %d: generated code writes other bytes, error %v", i, err)
			}
			for _, p := range b.Parts {
				if _, twice := seen[p.ID]; twice && p.Kind != Head {
					t.Fatalf("part %s of kind %s is there twice", p.ID, p.Kind)
				}
				seen[p.ID] = p
			}
		}
		if len(seen) != len(parts) {
			t.Fatalf("%d parts are in the batches, want %d", len(seen), len(parts))
		}
		for _, p := range parts {
			if diff := cmp.Diff(p, seen[p.ID], sameBatch); diff != "" {
				t.Fatalf("part %s (-cut +decoded):\n%s", p.ID, diff)
			}
		}
	})
}

// FuzzCut: the parts of a request sum to its increments, and a repeat in another order has the
// same parts.
func FuzzCut(f *testing.F) {
	f.Add([]byte("abcdefgh"), uint64(1))
	f.Add([]byte{1, 5, 0, 1, 1, 0xfb, 0, 1, 9, 9, 9, 0, 9, 9, 9, 0}, uint64(2))
	f.Add([]byte{1, 1, 0, 0, 2, 1, 0, 0, 3, 1, 0, 0, 4, 1, 0, 4, 5, 1, 0, 1, 6, 1, 0, 5}, uint64(3))
	f.Add([]byte("000,000$"), uint64(66)) // an id twice, with two times
	f.Fuzz(func(t *testing.T, text []byte, seed uint64) {
		incs := increments(text)
		parts, err := CutRequest("p", "k", incs)
		again := slices.Clone(incs)
		rand.New(rand.NewPCG(seed, 0)).Shuffle(len(again), func(i, j int) { again[i], again[j] = again[j], again[i] })
		other, otherErr := CutRequest("p", "k", again)
		if err != nil || otherErr != nil {
			return // a sum that is too large on the way may fit in another order
		}
		if diff := cmp.Diff(parts, other, sameBatch); diff != "" {
			t.Fatalf("in another order it is cut differently:\n%s", diff)
		}
		got := make(map[string]int64)
		for i, p := range parts {
			if len(p.Entries) > MaxEntries || (i == 0) != (p.Kind == Head) {
				t.Fatalf("part %d: kind %s, %d entries", i, p.Kind, len(p.Entries))
			}
			for _, e := range p.Entries {
				got[e.Counter] += e.Delta
			}
		}
		want := make(map[string]int64)
		seen := make(map[[2]string]bool)
		for _, inc := range incs {
			if name := [2]string{inc.Counter, inc.ID}; inc.ID == "" || !seen[name] {
				seen[name] = true
				want[inc.Counter] += inc.Delta
			}
		}
		for counter, n := range want {
			if got[counter] != n {
				t.Fatalf("counter %s: parts sum to %d, increments to %d", counter, got[counter], n)
			}
			delete(got, counter)
		}
		if len(got) > 0 {
			t.Fatalf("parts hold counters that no increment names: %v", got)
		}
	})
}
