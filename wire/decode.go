package wire

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/countmill/countmill"
)

// A NewerError is the error of Decode for a batch of a newer wire version. Such a batch is not
// invalid: a newer aggregator can read it.
type NewerError struct{ Version uint64 }

func (e NewerError) Error() string {
	return fmt.Sprintf("newer wire version %d, this is version %d", e.Version, Version)
}

// Decode reads a batch. An error is a NewerError, or matches countmill.ErrInvalid: the bytes can
// never be counted. Names in the result share one copy of payload; payload itself is not kept.
//
// Decode computes the ids of parts that have a name: an increment's id or an Idempotency-Key. So
// no batch can carry one name under the id of another. Decode cannot check whether the sender may
// use the name.
func Decode(payload []byte) (*Batch, error) {
	text := string(payload) // one copy for all names
	fields := cursor{bytes: payload, text: text}
	b := &Batch{}
	if err := decodeHeader(&fields, b); err != nil {
		return nil, err
	}
	d := partsDecoder{entries: make([]Entry, 0, len(payload)/24)}
	b.Parts = make([]Part, 0, countParts(fields.bytes))
	for !fields.done() {
		body, err := fields.message(batchParts)
		if err != nil {
			return nil, invalid("part %d: %w", len(b.Parts), err)
		}
		p, err := d.part(body)
		if err != nil {
			return nil, invalid("part %d: %w", len(b.Parts), err)
		}
		b.Parts = append(b.Parts, p)
	}
	if len(b.Parts) == 0 {
		return nil, invalid("batch: has no parts")
	}
	b.share(d.entries)
	return b, nil
}

// countParts counts the fields after the header of a batch, up to the largest possible number of
// parts.
func countParts(fields []byte) (n int) {
	const least = 14 // bytes of the smallest part: an id of one byte and a counter of one byte
	for most := len(fields) / least; len(fields) > 0 && n < most; n++ {
		_, _, size := protowire.ConsumeField(fields)
		if size < 0 {
			return n
		}
		fields = fields[size:]
	}
	return n
}

func decodeHeader(fields *cursor, b *Batch) error {
	version, err := fields.varint(batchVersion)
	if err != nil {
		return invalid("batch: %w", err)
	}
	if version > Version {
		return NewerError{version}
	}
	if version != Version {
		return invalid("batch: wire version %d, this is version %d", version, Version)
	}
	us, err := fields.varint(batchTime)
	if err != nil {
		return invalid("batch: %w", err)
	}
	if b.Time, err = timeOf(us); err != nil {
		return invalid("batch: %w", err)
	}
	if err := decodeFlush(fields, b); err != nil {
		return invalid("batch: %w", err)
	}
	return nil
}

func decodeFlush(fields *cursor, b *Batch) error {
	if !fields.next(batchFlush) {
		return nil
	}
	flush, err := fields.message(batchFlush)
	if err != nil {
		return err
	}
	if len(flush.bytes) != len(b.Flush) {
		return fmt.Errorf("flush has %d bytes, want %d", len(flush.bytes), len(b.Flush))
	}
	if copy(b.Flush[:], flush.bytes); b.Flush == (FlushID{}) {
		return errors.New("flush is all zeros")
	}
	if fields.next(batchNumber) {
		number, err := fields.varint(batchNumber)
		if err != nil {
			return err
		}
		if number == 0 || number > math.MaxInt32 {
			return fmt.Errorf("message number %d is out of range (limit: 1 to 2147483647)", number)
		}
		b.Number = int(number)
	}
	return nil
}

// share makes all parts use one array of entries. entries has the entries of all parts in order.
// The first parts may still use smaller arrays from before it grew.
func (b *Batch) share(entries []Entry) {
	if 4*len(entries) < 3*cap(entries) {
		entries = slices.Clone(entries)
	}
	for i := range b.Parts {
		n := len(b.Parts[i].Entries)
		b.Parts[i].Entries, entries = entries[:n:n], entries[n:]
	}
}

// A partsDecoder reads the parts of a batch.
type partsDecoder struct {
	entries []Entry // the entries of all parts
	request request // the request of the last head
}

// part reads a part, and appends its entries to d.entries.
func (d *partsDecoder) part(body cursor) (p Part, err error) {
	carried, err := decodeID(&body, &p)
	if err != nil {
		return p, err
	}
	if err := decodePartHeader(&body, &p); err != nil {
		return p, err
	}
	if err := decodeNames(&body, &p); err != nil {
		return p, err
	}
	if body.next(partSender) {
		if p.Sender, err = body.name(partSender, "sender"); err != nil {
			return p, err
		}
	}
	first := len(d.entries)
	for !body.done() && body.bytes[0] != tagIncrements {
		entry, err := body.message(partEntries)
		if err != nil {
			return p, err
		}
		e, err := decodeEntry(entry)
		if err != nil {
			return p, fmt.Errorf("entry %d: %w", len(d.entries)-first, err)
		}
		d.entries = append(d.entries, e)
	}
	p.Entries = d.entries[first:len(d.entries):len(d.entries)]
	if err := decodeIncrements(&body, &p); err != nil {
		return p, err
	}
	if err := checkEntries(&p); err != nil {
		return p, err
	}
	if err := d.request.take(&p); err != nil {
		return p, err
	}
	return p, d.identify(&p, carried)
}

// tagIncrements begins the field partCount: its number and the type of a varint, in one byte.
const tagIncrements = partCount<<3 | byte(protowire.VarintType)

// decodeIncrements reads the last field of a part. Nothing may follow it.
func decodeIncrements(body *cursor, p *Part) error {
	if body.done() {
		return nil
	}
	n, err := body.varint(partCount)
	if err != nil {
		return err
	}
	if n <= uint64(len(p.Entries)) || n > MaxIncrements {
		return fmt.Errorf("%d increments for %d entries (limit: more than the entries, up to %d)", n, len(p.Entries), int64(MaxIncrements))
	}
	p.Increments = int64(n)
	if !body.done() {
		return errors.New("has fields after its increments")
	}
	return nil
}

// identify computes the part's id, or checks the id on the wire.
func (d *partsDecoder) identify(p *Part, carried bool) error {
	if carried != p.Kind.carriesID() {
		return fmt.Errorf("%s part: id on the wire is %t, want %t", p.Kind, carried, !carried)
	}
	switch p.Kind.Class() {
	case IdentifiedClass:
		p.ID = IncrementID(p.Entries[0].Counter, p.Event)
	case KeyClass:
		if p.ID = d.request.head; p.Kind == Follower {
			p.ID = p.ID.numbered(int(p.Number))
		}
	}
	if p.ID.Class() != p.Kind.Class() {
		return fmt.Errorf("%s part has an id of class %d, want %d", p.Kind, p.ID.Class(), p.Kind.Class())
	}
	return nil
}

func decodeID(body *cursor, p *Part) (carried bool, err error) {
	if !body.next(partID) {
		return false, nil
	}
	id, err := body.message(partID)
	if err != nil {
		return false, err
	}
	if len(id.bytes) != len(p.ID) {
		return false, fmt.Errorf("id has %d bytes, want %d", len(id.bytes), len(p.ID))
	}
	copy(p.ID[:], id.bytes)
	return true, nil
}

func decodePartHeader(body *cursor, p *Part) error {
	if body.next(partKind) {
		kind, err := body.varint(partKind)
		if err != nil {
			return err
		}
		if kind == 0 || kind > uint64(Renewed) {
			return fmt.Errorf("kind %d is unknown", kind)
		}
		p.Kind = Kind(kind)
	}
	if body.next(partRequest) {
		request, err := body.fixed64(partRequest)
		if err != nil {
			return err
		}
		if !p.Kind.Keyed() || request == 0 {
			return fmt.Errorf("%s part may not have request %d", p.Kind, request)
		}
		p.Request = Fingerprint(request)
	}
	return decodeTimes(body, p)
}

func decodeTimes(body *cursor, p *Part) error {
	if body.next(partTime) {
		us, err := body.varint(partTime)
		if err != nil {
			return err
		}
		if us == 0 { // other readers would read 0 as no time
			return errors.New("time_us is 0")
		}
		if p.Time, err = timeOf(us); err != nil {
			return err
		}
	}
	if body.next(partMinute) {
		minute, err := body.varint(partMinute)
		if err != nil {
			return err
		}
		if minute == 0 || minute >= uint64(MinuteOf(MaxTime)) {
			return fmt.Errorf("minute %d is out of range (limit: 1 to %d)", minute, MinuteOf(MaxTime)-1)
		}
		p.Minute = Minute(minute)
	}
	return nil
}

// decodeNames reads the fields from which an id is computed. Each kind must have exactly its
// fields.
func decodeNames(body *cursor, p *Part) (err error) {
	if p.Kind.Class() == IdentifiedClass {
		if p.Event, err = body.name(partEvent, "id"); err != nil {
			return err
		}
	}
	if p.Kind == Head {
		p.Key = new(Key)
		if body.next(partPrincipal) {
			if p.Key.Principal, err = body.name(partPrincipal, "principal"); err != nil {
				return err
			}
		}
		if p.Key.Key, err = body.name(partKey, "Idempotency-Key"); err != nil {
			return err
		}
	}
	if p.Kind == Follower || p.Kind == Head && body.next(partNumber) {
		number, err := body.varint(partNumber)
		if err != nil {
			return err
		}
		if number == 0 || number > math.MaxInt32 {
			return fmt.Errorf("%s part has number %d (limit: 1 to 2147483647)", p.Kind, number)
		}
		p.Number = int32(number)
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
		return fmt.Errorf("has %d entries (limit: %d)", n, MaxEntries)
	case n > 1 && p.Kind.Class() == IdentifiedClass:
		return fmt.Errorf("%s part has %d entries (limit: 1)", p.Kind, n)
	}
	if ascend(p.Entries) {
		return nil
	}
	for i := range p.Entries {
		for j := range i {
			if p.Entries[i].Counter == p.Entries[j].Counter {
				return fmt.Errorf("counter %q is there twice", p.Entries[i].Counter)
			}
		}
	}
	return nil
}

// ascend reports whether the entries strictly ascend by Order, as publishers cut them. Then no
// counter is there twice.
func ascend(entries []Entry) bool {
	var last uint64
	for i := range entries {
		order := Order(entries[i].Counter)
		if i > 0 && order <= last {
			return false
		}
		last = order
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
		return Entry{}, fmt.Errorf("delta %d is out of range (limit: -2^62 to 2^62, not 0)", e.Delta)
	}
	return e, nil
}

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{countmill.ErrInvalid}, args...)...)
}
