package wire

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/countmill/countmill"
)

// A NewerError is the error of Decode for a batch of a wire version that this package
// does not know. Such a batch is not invalid: a newer aggregator can read it.
type NewerError struct{ Version uint64 }

func (e NewerError) Error() string {
	return fmt.Sprintf("newer wire version %d, this is version %d", e.Version, Version)
}

// Decode reads a batch. Every error but a NewerError matches
// countmill.ErrInvalid: the bytes can never be counted. Names in the result share one
// copy of payload; payload itself is not kept.
func Decode(payload []byte) (*Batch, error) {
	text := string(payload) // the one copy, so that names cost no allocation each
	fields := cursor{bytes: payload, text: text}
	version, err := fields.varint(batchVersion)
	if err != nil {
		return nil, invalid("batch: %w", err)
	}
	if version > Version {
		return nil, NewerError{version}
	}
	if version != Version {
		return nil, invalid("batch: wire version %d", version)
	}
	us, err := fields.varint(batchTime)
	if err != nil {
		return nil, invalid("batch: %w", err)
	}
	b := &Batch{}
	if b.Time, err = timeOf(us); err != nil {
		return nil, invalid("batch: %w", err)
	}
	entries := make([]Entry, 0, len(payload)/24)
	head := -1 // the nearest before the part at hand
	for !fields.done() {
		body, err := fields.message(batchParts)
		if err != nil {
			return nil, invalid("part %d: %w", len(b.Parts), err)
		}
		var p Part
		if entries, err = decodePart(body, &p, entries); err != nil {
			return nil, invalid("part %d: %w", len(b.Parts), err)
		}
		if p.Kind == Head {
			head = len(b.Parts)
		}
		if p.Kind.Follows() && (head < 0 || b.Parts[head].Request != p.Request) {
			return nil, invalid("part %d: follows no head of its request", len(b.Parts))
		}
		b.Parts = append(b.Parts, p)
	}
	if len(b.Parts) == 0 {
		return nil, invalid("batch: has no parts")
	}
	b.share(entries)
	return b, nil
}

// share has all parts refer to one array that is not much larger than it has to be, entries, which
// holds theirs in order. It may have grown: then the first parts refer to one of those before.
func (b *Batch) share(entries []Entry) {
	if 4*len(entries) < 3*cap(entries) {
		entries = slices.Clone(entries)
	}
	for i := range b.Parts {
		n := len(b.Parts[i].Entries)
		b.Parts[i].Entries, entries = entries[:n:n], entries[n:]
	}
}

// decodePart appends the part's entries to the array that all parts of a batch share.
func decodePart(body cursor, p *Part, entries []Entry) ([]Entry, error) {
	id, err := body.message(partID)
	if err != nil {
		return entries, err
	}
	if len(id.bytes) != len(p.ID) {
		return entries, fmt.Errorf("id of %d bytes", len(id.bytes))
	}
	copy(p.ID[:], id.bytes)
	if err := decodePartHeader(&body, p); err != nil {
		return entries, err
	}
	first := len(entries)
	for !body.done() {
		entry, err := body.message(partEntries)
		if err != nil {
			return entries, err
		}
		e, err := decodeEntry(entry)
		if err != nil {
			return entries, fmt.Errorf("entry %d: %w", len(entries)-first, err)
		}
		entries = append(entries, e)
	}
	p.Entries = entries[first:len(entries):len(entries)]
	return entries, checkEntries(p)
}

func decodePartHeader(body *cursor, p *Part) error {
	if body.next(partKind) {
		kind, err := body.varint(partKind)
		if err != nil {
			return err
		}
		if kind == 0 || kind > uint64(IdentifiedRest) {
			return fmt.Errorf("kind %d", kind)
		}
		p.Kind = Kind(kind)
	}
	if body.next(partRequest) {
		request, err := body.fixed64(partRequest)
		if err != nil {
			return err
		}
		if !p.Kind.Keyed() || request == 0 {
			return fmt.Errorf("%s with request %d", p.Kind, request)
		}
		p.Request = Fingerprint(request)
	}
	if body.next(partTime) {
		us, err := body.varint(partTime)
		if err != nil {
			return err
		}
		if us == 0 { // other readers take it for no time
			return errors.New("time_us 0")
		}
		p.Time, err = timeOf(us)
		return err
	}
	return nil
}

func timeOf(us uint64) (time.Time, error) {
	t := time.UnixMicro(int64(us))
	if !InRange(t) {
		return t, fmt.Errorf("time_us %d is out of range (limit: 1970 to 2261)", int64(us))
	}
	return t, nil
}

func checkEntries(p *Part) error {
	switch n := len(p.Entries); {
	case n == 0 && p.Kind != Head:
		return errors.New("has no entries")
	case n > MaxEntries:
		return fmt.Errorf("has %d entries, at most %d", n, MaxEntries)
	case n > 1 && (p.Kind == Identified || p.Kind == IdentifiedRest):
		return fmt.Errorf("%s with %d entries", p.Kind, n)
	}
	if ascend(p.Entries) {
		return nil
	}
	for i := range p.Entries {
		for j := range i {
			if p.Entries[i].Counter == p.Entries[j].Counter {
				return fmt.Errorf("counter %q stands twice", p.Entries[i].Counter)
			}
		}
	}
	return nil
}

// ascend reports whether the hashes of the entries' counters do, as publishers cut them. Then no
// counter stands twice.
func ascend(entries []Entry) bool {
	var last uint64
	for i := range entries {
		hash := HashCounter(entries[i].Counter)
		if i > 0 && hash <= last {
			return false
		}
		last = hash
	}
	return true
}

func decodeEntry(body cursor) (Entry, error) {
	counter, err := body.message(entryCounter)
	if err != nil {
		return Entry{}, err
	}
	if err := countmill.CheckCounter(counter.text); err != nil {
		return Entry{}, err
	}
	delta, err := body.varint(entryDelta)
	if err != nil {
		return Entry{}, err
	}
	if !body.done() {
		return Entry{}, errors.New("unknown field")
	}
	e := Entry{Counter: counter.text, Delta: protowire.DecodeZigZag(delta)}
	if e.Delta == 0 || e.Delta > MaxSum || e.Delta < -MaxSum {
		return Entry{}, fmt.Errorf("delta %d", e.Delta)
	}
	return e, nil
}

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{countmill.ErrInvalid}, args...)...)
}

// A cursor walks the fields of a message. bytes and text are the same content, the
// second for names to be cut from.
type cursor struct {
	bytes []byte
	text  string
}

func (c *cursor) done() bool { return len(c.bytes) == 0 }

func (c *cursor) skip(n int) { c.bytes, c.text = c.bytes[n:], c.text[n:] }

// next reports whether the field at hand has that number.
func (c *cursor) next(number protowire.Number) bool {
	got, _, n := protowire.ConsumeTag(c.bytes)
	return n > 0 && got == number
}

func (c *cursor) tag(number protowire.Number, kind protowire.Type) error {
	if c.done() {
		return fmt.Errorf("field %d is missing", number)
	}
	gotNumber, gotKind, n := protowire.ConsumeTag(c.bytes)
	if n < 0 {
		return protowire.ParseError(n)
	}
	if gotNumber != number || gotKind != kind {
		return fmt.Errorf("field %d of type %d where %d of type %d belongs", gotNumber, gotKind, number, kind)
	}
	c.skip(n)
	return nil
}

func (c *cursor) varint(number protowire.Number) (uint64, error) {
	if err := c.tag(number, protowire.VarintType); err != nil {
		return 0, err
	}
	v, n := protowire.ConsumeVarint(c.bytes)
	if n < 0 {
		return 0, protowire.ParseError(n)
	}
	c.skip(n)
	return v, nil
}

func (c *cursor) fixed64(number protowire.Number) (uint64, error) {
	if err := c.tag(number, protowire.Fixed64Type); err != nil {
		return 0, err
	}
	v, n := protowire.ConsumeFixed64(c.bytes)
	if n < 0 {
		return 0, protowire.ParseError(n)
	}
	c.skip(n)
	return v, nil
}

// message is the content of a length-delimited field.
func (c *cursor) message(number protowire.Number) (cursor, error) {
	if err := c.tag(number, protowire.BytesType); err != nil {
		return cursor{}, err
	}
	v, n := protowire.ConsumeBytes(c.bytes)
	if n < 0 {
		return cursor{}, protowire.ParseError(n)
	}
	inner := cursor{bytes: v, text: c.text[n-len(v) : n]}
	c.skip(n)
	return inner, nil
}
