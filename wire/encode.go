package wire

import (
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

// Field numbers of batch.proto.
const (
	batchVersion = 1
	batchTime    = 2
	batchParts   = 3

	partID      = 1
	partKind    = 2
	partRequest = 3
	partTime    = 4
	partEntries = 5

	entryCounter = 1
	entryDelta   = 2
)

// Append appends the encoded batch to dst. It does not check the batch and does not
// split it: Pack does.
func Append(dst []byte, b *Batch) []byte {
	dst = appendHeader(dst, b.Time)
	for i := range b.Parts {
		dst = appendPart(dst, &b.Parts[i])
	}
	return dst
}

// Pack encodes parts as batches of at most limit bytes (MaxBatch unless a test says
// otherwise), in order. Where a request with a key goes on in a further batch, that
// batch begins with a copy of the request's head. A single part always fits: 24
// entries are at most 13 KiB.
func Pack(t time.Time, parts []Part, limit int) [][]byte {
	var batches [][]byte
	var open []byte
	header := appendHeader(nil, t)
	head := -1 // the head that the parts at hand may follow
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
			open = append(make([]byte, 0, openCapacity(parts[i:], limit)), header...)
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
	return batches
}

// openCapacity guesses how large a batch of these parts becomes.
func openCapacity(parts []Part, limit int) int {
	n := 16
	for i := range parts {
		if n += SizePart(&parts[i]); n >= limit {
			return limit
		}
	}
	return n
}

func appendHeader(dst []byte, t time.Time) []byte {
	dst = protowire.AppendTag(dst, batchVersion, protowire.VarintType)
	dst = protowire.AppendVarint(dst, Version)
	dst = protowire.AppendTag(dst, batchTime, protowire.VarintType)
	return protowire.AppendVarint(dst, uint64(t.UnixMicro()))
}

// SizePart is how many bytes a part adds to a batch.
func SizePart(p *Part) int {
	body := bodySize(p)
	return 1 + protowire.SizeBytes(body)
}

func bodySize(p *Part) int {
	n := 1 + 1 + len(p.ID)
	if p.Kind != Anonymous {
		n += 2
	}
	if p.Request != 0 {
		n += 9
	}
	if !p.Time.IsZero() {
		n += 1 + protowire.SizeVarint(uint64(p.Time.UnixMicro()))
	}
	for i := range p.Entries {
		n += 1 + protowire.SizeBytes(sizeEntry(&p.Entries[i]))
	}
	return n
}

func sizeEntry(e *Entry) int {
	return 1 + protowire.SizeBytes(len(e.Counter)) + 1 + protowire.SizeVarint(protowire.EncodeZigZag(e.Delta))
}

func appendPart(dst []byte, p *Part) []byte {
	dst = protowire.AppendTag(dst, batchParts, protowire.BytesType)
	dst = protowire.AppendVarint(dst, uint64(bodySize(p)))
	dst = protowire.AppendTag(dst, partID, protowire.BytesType)
	dst = protowire.AppendBytes(dst, p.ID[:])
	if p.Kind != Anonymous {
		dst = protowire.AppendTag(dst, partKind, protowire.VarintType)
		dst = protowire.AppendVarint(dst, uint64(p.Kind))
	}
	if p.Request != 0 {
		dst = protowire.AppendTag(dst, partRequest, protowire.Fixed64Type)
		dst = protowire.AppendFixed64(dst, uint64(p.Request))
	}
	if !p.Time.IsZero() {
		dst = protowire.AppendTag(dst, partTime, protowire.VarintType)
		dst = protowire.AppendVarint(dst, uint64(p.Time.UnixMicro()))
	}
	for i := range p.Entries {
		dst = appendEntry(dst, &p.Entries[i])
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
