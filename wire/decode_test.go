package wire

import (
	"bytes"
	"errors"
	"math"
	"slices"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/countmill/countmill"
)

// anyID is an id of an anonymous part.
var anyID = PartID{byte(AnonymousClass) << 4, 1}

// wrap is content as a field.
func wrap(number protowire.Number, content []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(nil, number, protowire.BytesType), content)
}

// unwrap returns the content of a single field.
func unwrap(t *testing.T, field []byte) []byte {
	t.Helper()
	_, _, n := protowire.ConsumeTag(field)
	content, m := protowire.ConsumeBytes(field[n:])
	if n+m != len(field) {
		t.Fatalf("%x is not one field", field)
	}
	return content
}

// A batch, a part or an entry that is truncated at any byte is refused, unless the rest is
// complete: fewer parts, or a part with fewer fields.
func TestDecodeRefusesTruncatedInput(t *testing.T) {
	t.Parallel()
	p := Part{
		Kind: Head, Request: 7, Time: epoch, Minute: MinuteOf(epoch), Key: &Key{"me", "k"}, Entries: []Entry{{"a", 300}, {"b", -300}},
	}
	start := Batch{Time: epoch, Flush: FlushID{1}, Number: 300}
	header, part, entry := appendHeader(nil, &start), appendPart(nil, &p), appendEntry(nil, &p.Entries[0])
	check := func(what string, cut int, payload []byte, want bool) {
		if b, err := Decode(payload); errors.Is(err, countmill.ErrInvalid) != want {
			t.Errorf("%s of %d bytes: got %v, error %v, want ErrInvalid: %t", what, cut, b, err, want)
		}
	}

	batch := slices.Concat(header, part, part)
	for cut := range batch {
		check("batch", cut, batch[:cut], cut != len(header)+len(part))
	}
	whole := map[int]bool{}
	for n := range len(p.Entries) {
		shorter := p
		shorter.Entries = p.Entries[:n]
		whole[bodySize(&shorter)] = true
	}
	body := unwrap(t, part)
	for cut := range body {
		check("part", cut, slices.Concat(header, wrap(batchParts, body[:cut])), !whole[cut])
	}
	fields := unwrap(t, entry)
	for cut := range fields {
		content := slices.Concat(wrap(partID, anyID[:]), wrap(partEntries, fields[:cut]))
		check("entry", cut, slices.Concat(header, wrap(batchParts, content)), true)
	}
}

func TestDecodeRefusesFieldsThatAreNotTheFormats(t *testing.T) {
	t.Parallel()
	id, entry := wrap(partID, anyID[:]), appendEntry(nil, &Entry{"a", 1})
	varint := func(number protowire.Number, v uint64) []byte {
		return protowire.AppendVarint(protowire.AppendTag(nil, number, protowire.VarintType), v)
	}
	kind := func(k Kind) []byte { return varint(partKind, uint64(k)) }
	request := func(v uint64) []byte {
		return protowire.AppendFixed64(protowire.AppendTag(nil, partRequest, protowire.Fixed64Type), v)
	}
	key := wrap(partKey, []byte("k"))
	ofIncrement, ofRequest, ofMessage := IncrementID("a", "x"), KeyID("", "k", 0), MessageID("t", "1", 0)
	renewed := RenewedOf(anyID, 1)
	for _, tt := range []struct {
		name   string
		fields [][]byte
		good   bool
	}{
		{"as it should be", [][]byte{id, entry}, true},
		{"id of 15 bytes", [][]byte{wrap(partID, anyID[:15]), entry}, false},
		{"id of 17 bytes", [][]byte{wrap(partID, append(anyID[:], 1)), entry}, false},
		{"id of another type", [][]byte{varint(partID, 16), entry}, false},
		{"no id", [][]byte{entry}, false},
		{"id of no class", [][]byte{wrap(partID, make([]byte, 16)), entry}, false},
		{"id of an increment", [][]byte{wrap(partID, ofIncrement[:]), entry}, false},
		{"id of a request", [][]byte{wrap(partID, ofRequest[:]), entry}, false},
		{"kind that says it is anonymous", [][]byte{id, kind(Anonymous), entry}, false},
		{"kind of another type", [][]byte{id, wrap(partKind, []byte{1}), entry}, false},
		{"kind beyond the last", [][]byte{id, kind(Renewed + 1), entry}, false},
		{"anonymous with an event", [][]byte{id, wrap(partEvent, []byte("x")), entry}, false},
		{"foreign with a random id", [][]byte{id, kind(Foreign), entry}, false},
		{"foreign", [][]byte{wrap(partID, ofMessage[:]), kind(Foreign), entry}, true},
		{"renewed with a random id", [][]byte{id, kind(Renewed), entry}, false},
		{"renewed", [][]byte{wrap(partID, renewed[:]), kind(Renewed), entry}, true},
		{"identified", [][]byte{kind(Identified), wrap(partEvent, []byte("x")), entry}, true},
		{"identified with an id on the wire", [][]byte{wrap(partID, ofIncrement[:]), kind(Identified), wrap(partEvent, []byte("x")), entry}, false},
		{"identified without its event", [][]byte{kind(Identified), entry}, false},
		{"identified with an empty event", [][]byte{kind(Identified), wrap(partEvent, nil), entry}, false},
		{"identified with an event too long", [][]byte{kind(Identified), wrap(partEvent, bytes.Repeat([]byte("x"), 129)), entry}, false},
		{"identified with a key", [][]byte{kind(Identified), wrap(partEvent, []byte("x")), wrap(partKey, []byte("k")), entry}, false},
		{"identified with a request", [][]byte{kind(Identified), request(1), wrap(partEvent, []byte("x")), entry}, false},
		{"the last that follows, without its head", [][]byte{kind(IdentifiedFollower), request(1), wrap(partEvent, []byte("x")), entry}, false},
		{"head with a request", [][]byte{kind(Head), request(1), key, entry}, true},
		{"head of a principal", [][]byte{kind(Head), request(1), wrap(partPrincipal, []byte("me")), key, entry}, true},
		{"head with an empty principal", [][]byte{kind(Head), request(1), wrap(partPrincipal, nil), key, entry}, false},
		{"head without its key", [][]byte{kind(Head), request(1), entry}, false},
		{"head with an id on the wire", [][]byte{wrap(partID, ofRequest[:]), kind(Head), request(1), key, entry}, false},
		{"head without entries before others", [][]byte{kind(Head), request(1), key, varint(partNumber, 1)}, true},
		{"head with an entry before others", [][]byte{kind(Head), request(1), key, varint(partNumber, 1), entry}, true},
		{"head before no others", [][]byte{kind(Head), request(1), key, varint(partNumber, 0), entry}, false},
		{"head with an event", [][]byte{kind(Head), request(1), wrap(partEvent, []byte("x")), key, entry}, false},
		{"head with request 0", [][]byte{kind(Head), request(0), key, entry}, false},
		{"request of another type", [][]byte{kind(Head), varint(partRequest, 1), key, entry}, false},
		{"request of another type, eight bytes in all", [][]byte{kind(Head), wrap(partRequest, make([]byte, 6)), key, entry}, false},
		{"time of another type", [][]byte{id, wrap(partTime, []byte{1}), entry}, false},
		{"a minute", [][]byte{id, varint(partMinute, uint64(MinuteOf(MaxTime))-1), entry}, true},
		{"minute 0", [][]byte{id, varint(partMinute, 0), entry}, false},
		{"minute of the year 2262", [][]byte{id, varint(partMinute, uint64(MinuteOf(MaxTime))), entry}, false},
		{"minute before 1970", [][]byte{id, varint(partMinute, math.MaxUint64), entry}, false},
		{"increments", [][]byte{id, entry, varint(partCount, 2)}, true},
		{"the most increments", [][]byte{id, entry, varint(partCount, MaxIncrements)}, true},
		{"too many increments", [][]byte{id, entry, varint(partCount, MaxIncrements+1)}, false},
		{"no more increments than entries", [][]byte{id, entry, varint(partCount, 1)}, false},
		{"increments 0", [][]byte{id, entry, varint(partCount, 0)}, false},
		{"increments before the entries", [][]byte{id, varint(partCount, 2), entry}, false},
		{"increments twice", [][]byte{id, entry, varint(partCount, 2), varint(partCount, 2)}, false},
		{"increments of another type", [][]byte{id, entry, wrap(partCount, []byte{2})}, false},
		{"a sender", [][]byte{id, wrap(partSender, []byte("web")), entry}, true},
		{"an empty sender", [][]byte{id, wrap(partSender, nil), entry}, false},
		{"a sender that is too long", [][]byte{id, wrap(partSender, bytes.Repeat([]byte("x"), 129)), entry}, false},
		{"a sender after the entries", [][]byte{id, entry, wrap(partSender, []byte("web"))}, false},
		{"a sender of another type", [][]byte{id, varint(partSender, 1), entry}, false},
		{"further field in the entry", [][]byte{id, wrap(partEntries, append(unwrap(t, entry), varint(3, 1)...))}, false},
		{"entry without its tag", [][]byte{id, entry[1:]}, false},
		{"delta of another type", [][]byte{id, wrap(partEntries, append(wrap(entryCounter, []byte("a")), wrap(entryDelta, []byte{2})...))}, false},
	} {
		payload := append(appendHeader(nil, &Batch{Time: epoch}), wrap(batchParts, slices.Concat(tt.fields...))...)
		if b, err := Decode(payload); tt.good != (err == nil) || err != nil && !errors.Is(err, countmill.ErrInvalid) {
			t.Errorf("%s: got %v, error %v, want it taken: %t", tt.name, b, err, tt.good)
		}
	}
}
