package wire

import (
	"errors"
	"slices"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/countmill/countmill"
)

// wrap is content as a field.
func wrap(number protowire.Number, content []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(nil, number, protowire.BytesType), content)
}

// unwrap is the content of the one field that field is.
func unwrap(t *testing.T, field []byte) []byte {
	t.Helper()
	_, _, n := protowire.ConsumeTag(field)
	content, m := protowire.ConsumeBytes(field[n:])
	if n+m != len(field) {
		t.Fatalf("%x is not one field", field)
	}
	return content
}

// What ends too early is refused, at every byte of a batch, a part and an entry, unless
// what is there is whole: fewer parts, a part of fewer fields.
func TestDecodeRefusesWhatIsCutShort(t *testing.T) {
	t.Parallel()
	p := Part{ID: PartID{1}, Kind: Head, Request: 7, Time: epoch, Entries: []Entry{{"a", 300}, {"b", -300}}}
	header, part, entry := appendHeader(nil, epoch), appendPart(nil, &p), appendEntry(nil, &p.Entries[0])
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
	for _, shorter := range []Part{
		{Kind: p.Kind}, {Kind: p.Kind, Request: p.Request}, {Kind: p.Kind, Request: p.Request, Time: p.Time},
		{Kind: p.Kind, Request: p.Request, Time: p.Time, Entries: p.Entries[:1]},
	} {
		whole[bodySize(&shorter)] = true
	}
	body := unwrap(t, part)
	for cut := range body {
		check("part", cut, slices.Concat(header, wrap(batchParts, body[:cut])), !whole[cut])
	}
	fields := unwrap(t, entry)
	for cut := range fields {
		content := slices.Concat(wrap(partID, p.ID[:]), wrap(partEntries, fields[:cut]))
		check("entry", cut, slices.Concat(header, wrap(batchParts, content)), true)
	}
}

func TestDecodeRefusesFieldsThatAreNotTheFormats(t *testing.T) {
	t.Parallel()
	id, entry := wrap(partID, make([]byte, 16)), appendEntry(nil, &Entry{"a", 1})
	varint := func(number protowire.Number, v uint64) []byte {
		return protowire.AppendVarint(protowire.AppendTag(nil, number, protowire.VarintType), v)
	}
	kind := func(k Kind) []byte { return varint(partKind, uint64(k)) }
	request := func(v uint64) []byte {
		return protowire.AppendFixed64(protowire.AppendTag(nil, partRequest, protowire.Fixed64Type), v)
	}
	for _, tt := range []struct {
		name   string
		fields [][]byte
		good   bool
	}{
		{"as it should be", [][]byte{id, entry}, true},
		{"id of 15 bytes", [][]byte{wrap(partID, make([]byte, 15)), entry}, false},
		{"id of 17 bytes", [][]byte{wrap(partID, make([]byte, 17)), entry}, false},
		{"id of another type", [][]byte{varint(partID, 16), entry}, false},
		{"kind that says it is anonymous", [][]byte{id, kind(Anonymous), entry}, false},
		{"kind of another type", [][]byte{id, wrap(partKind, []byte{1}), entry}, false},
		{"the last kind, without its head", [][]byte{id, kind(IdentifiedRest), entry}, false},
		{"head with a request", [][]byte{id, kind(Head), request(1), entry}, true},
		{"head with request 0", [][]byte{id, kind(Head), request(0), entry}, false},
		{"request of another type", [][]byte{id, kind(Head), varint(partRequest, 1), entry}, false},
		{"request of another type, eight bytes in all", [][]byte{id, kind(Head), wrap(partRequest, make([]byte, 6)), entry}, false},
		{"time of another type", [][]byte{id, wrap(partTime, []byte{1}), entry}, false},
		{"further field in the entry", [][]byte{id, wrap(partEntries, append(unwrap(t, entry), varint(3, 1)...))}, false},
		{"entry without its tag", [][]byte{id, entry[1:]}, false},
		{"delta of another type", [][]byte{id, wrap(partEntries, append(wrap(entryCounter, []byte("a")), wrap(entryDelta, []byte{2})...))}, false},
	} {
		payload := append(appendHeader(nil, epoch), wrap(batchParts, slices.Concat(tt.fields...))...)
		if b, err := Decode(payload); tt.good != (err == nil) || err != nil && !errors.Is(err, countmill.ErrInvalid) {
			t.Errorf("%s: got %v, error %v, want it taken: %t", tt.name, b, err, tt.good)
		}
	}
}
