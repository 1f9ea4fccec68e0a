package wire

import (
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

// Field numbers of batch.proto.
const (
	batchVersion = 1
	batchTime    = 2
	batchFlush   = 3
	batchNumber  = 4
	batchParts   = 7

	partID        = 1
	partKind      = 2
	partRequest   = 3
	partTime      = 4
	partMinute    = 5
	partEvent     = 6
	partPrincipal = 7
	partKey       = 8
	partNumber    = 9
	partSender    = 10
	partEntries   = 11
	partCount     = 12

	entryCounter = 1
	entryDelta   = 2
)

// Append appends the encoded batch to dst. It neither checks nor splits the batch: Pack does.
func Append(dst []byte, b *Batch) []byte {
	dst = appendHeader(dst, b)
	for i := range b.Parts {
		dst = appendPart(dst, &b.Parts[i])
	}
	return dst
}

// Pack encodes parts as the messages of a flush, in order. Each is a batch of at most limit bytes
// (MaxBatch, except in tests). If a request with a key continues in the next batch, that batch
// begins with a copy of the request's head. A single part always fits: 24 entries have at most 13
// KiB. It also returns the position of the first part of each message, without copies of heads.
func Pack(t time.Time, flush FlushID, parts []Part, limit int) (batches [][]byte, first []int) {
	var open []byte
	head := -1 // the head that the next parts may follow
	inOpen := false
	for i := range parts {
		p := &parts[i]
		if p.Kind == Head {
			head, inOpen = i, true
		}
		size := SizePart(p)
		if open != nil && len(open)+size > limit {
			batches = append(batches, open)
			open, inOpen = nil, p.Kind == Head
		}
		if open == nil {
			open = appendHeader(make([]byte, 0, openCapacity(parts[i:], limit)), &Batch{Time: t, Flush: flush, Number: len(batches)})
			first = append(first, i)
		}
		if p.Kind.Follows() && !inOpen && head >= 0 {
			open = appendPart(open, &parts[head])
			inOpen = true
		}
		open = appendPart(open, p)
	}
	if open != nil {
		batches = append(batches, open)
	}
	return batches, first
}

// openCapacity estimates the size of a batch of these parts.
func openCapacity(parts []Part, limit int) int {
	n := 40
	for i := range parts {
		if n += SizePart(&parts[i]); n >= limit {
			return limit
		}
	}
	return n
}

func appendHeader(dst []byte, b *Batch) []byte {
	dst = appendVarint(dst, batchVersion, Version)
	dst = appendVarint(dst, batchTime, uint64(b.Time.UnixMicro()))
	if b.Flush == (FlushID{}) {
		return dst
	}
	dst = protowire.AppendTag(dst, batchFlush, protowire.BytesType)
	dst = protowire.AppendBytes(dst, b.Flush[:])
	if b.Number != 0 {
		dst = appendVarint(dst, batchNumber, uint64(b.Number))
	}
	return dst
}

func appendVarint(dst []byte, field protowire.Number, v uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(dst, field, protowire.VarintType), v)
}

func appendString(dst []byte, field protowire.Number, s string) []byte {
	return protowire.AppendString(protowire.AppendTag(dst, field, protowire.BytesType), s)
}

// SizePart is the number of bytes that a part adds to a batch.
func SizePart(p *Part) int {
	body := bodySize(p)
	return 1 + protowire.SizeBytes(body)
}

func bodySize(p *Part) int {
	n := 0
	if p.Kind.carriesID() {
		n += 1 + 1 + len(p.ID)
	}
	if p.Kind != Anonymous {
		n += 2
	}
	if p.Request != 0 {
		n += 9
	}
	if !p.Time.IsZero() {
		n += 1 + protowire.SizeVarint(uint64(p.Time.UnixMicro()))
	}
	if p.Minute != 0 {
		n += 1 + protowire.SizeVarint(uint64(p.Minute))
	}
	if p.Event != "" {
		n += 1 + protowire.SizeBytes(len(p.Event))
	}
	if p.Key != nil {
		if p.Key.Principal != "" {
			n += 1 + protowire.SizeBytes(len(p.Key.Principal))
		}
		n += 1 + protowire.SizeBytes(len(p.Key.Key))
	}
	if p.Number != 0 {
		n += 1 + protowire.SizeVarint(uint64(p.Number))
	}
	if p.Sender != "" {
		n += 1 + protowire.SizeBytes(len(p.Sender))
	}
	for i := range p.Entries {
		n += 1 + protowire.SizeBytes(sizeEntry(&p.Entries[i]))
	}
	if p.Increments != 0 {
		n += 1 + protowire.SizeVarint(uint64(p.Increments))
	}
	return n
}

func sizeEntry(e *Entry) int {
	return 1 + protowire.SizeBytes(len(e.Counter)) + 1 + protowire.SizeVarint(protowire.EncodeZigZag(e.Delta))
}

func appendPart(dst []byte, p *Part) []byte {
	dst = protowire.AppendTag(dst, batchParts, protowire.BytesType)
	dst = protowire.AppendVarint(dst, uint64(bodySize(p)))
	if p.Kind.carriesID() {
		dst = protowire.AppendTag(dst, partID, protowire.BytesType)
		dst = protowire.AppendBytes(dst, p.ID[:])
	}
	if p.Kind != Anonymous {
		dst = appendVarint(dst, partKind, uint64(p.Kind))
	}
	if p.Request != 0 {
		dst = protowire.AppendTag(dst, partRequest, protowire.Fixed64Type)
		dst = protowire.AppendFixed64(dst, uint64(p.Request))
	}
	if !p.Time.IsZero() {
		dst = appendVarint(dst, partTime, uint64(p.Time.UnixMicro()))
	}
	if p.Minute != 0 {
		dst = appendVarint(dst, partMinute, uint64(p.Minute))
	}
	dst = appendNames(dst, p)
	if p.Sender != "" {
		dst = appendString(dst, partSender, p.Sender)
	}
	for i := range p.Entries {
		dst = appendEntry(dst, &p.Entries[i])
	}
	if p.Increments != 0 {
		dst = appendVarint(dst, partCount, uint64(p.Increments))
	}
	return dst
}

// appendNames appends the fields from which an id is computed.
func appendNames(dst []byte, p *Part) []byte {
	if p.Event != "" {
		dst = appendString(dst, partEvent, p.Event)
	}
	if p.Key != nil {
		if p.Key.Principal != "" {
			dst = appendString(dst, partPrincipal, p.Key.Principal)
		}
		dst = appendString(dst, partKey, p.Key.Key)
	}
	if p.Number != 0 {
		dst = appendVarint(dst, partNumber, uint64(p.Number))
	}
	return dst
}

func appendEntry(dst []byte, e *Entry) []byte {
	dst = protowire.AppendTag(dst, partEntries, protowire.BytesType)
	dst = protowire.AppendVarint(dst, uint64(sizeEntry(e)))
	dst = protowire.AppendTag(dst, entryCounter, protowire.BytesType)
	dst = protowire.AppendString(dst, e.Counter)
	dst = protowire.AppendTag(dst, entryDelta, protowire.VarintType)
	return protowire.AppendVarint(dst, protowire.EncodeZigZag(e.Delta))
}
