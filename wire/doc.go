// Package wire is what countmill puts on the bus: batches of parts, as bytes.
//
// # Batches and parts
//
// A batch is what one message carries. It holds parts; a part holds at most 24
// entries, each the coalesced delta of one counter. The publisher cuts parts, and
// nobody ever cuts or joins them again: a part is what one marker in the store stands
// for, so a part that changed after its marker was written could be lost or doubled.
// For the same reason a batch is sealed at its first send: its bytes never change.
//
// # Bytes
//
// A batch is encoded as the protobuf message countmill.v1.Batch (batch.proto in this
// directory), so that any language can read or write it; the Go code is written by
// hand over protowire, because it takes names out of the payload without an
// allocation each and refuses what generated code lets pass: unknown fields, fields
// out of order, entries of 0. docs/adr/010-the-wire-format-has-its-own-codec.md
// has the measurement. A reader that meets a version it does not know refuses the batch as a
// whole.
//
// # JSON
//
// Publishers without this package send JSON: over HTTP, or as a message straight on the
// topic. DecodeJSON reads both, so that both accept the same and refuse the same.
//
// # Identity
//
// Ids of anonymous parts are random. All others are computed (id.go), so that whoever
// repeats the same increment or the same request makes the same parts again.
//
// # Requests with a key
//
// A request with an Idempotency-Key can need several parts, and several messages. Its
// first part is the head; every message of the request begins with a copy of the head
// (a copy is harmless: same id, same fingerprint), and its other parts follow it: they
// may be applied only after the head is known to be applied with this request's
// fingerprint. Without that rule a longer request under a key used before would lose
// its head as "id reused" and have its tail counted.
package wire
