// Package wire has the format of bus messages: batches of parts, encoded as bytes.
//
// # Batches and parts
//
// One message carries one batch. A batch holds parts, and a part holds at most 24 entries. Each
// entry is the coalesced delta of one counter.
//
// The publisher cuts parts, and no other code cuts or joins them again. The reason is that one
// marker in the store records that one part was applied. If a part changed after its marker was
// written, increments could be lost or counted twice. For the same reason a batch is flushed when
// it is first sent: its bytes never change.
//
// # Bytes
//
// A batch is encoded as the protobuf message countmill.v1.Batch (batch.proto in this directory),
// so that every language can read and write it. The Go code is written by hand over protowire,
// for two reasons. It takes names out of the payload without an allocation for each. It also
// refuses input that generated code accepts: unknown fields, fields out of order, entries of 0.
// A reader of an older version refuses the whole batch.
//
// # JSON
//
// Publishers without this package send JSON, over HTTP or as a message on the topic. DecodeJSON
// reads both, so that both accept and refuse the same input.
//
// # Identity
//
// The ids of anonymous parts are random. All others are computed (id.go). So every repeat of the
// same increment or request makes the same parts again.
//
// # Requests with a key
//
// A request with an Idempotency-Key can need several parts, and several messages. Its first part
// is the head. Every message of the request begins with a copy of the head; copies are harmless,
// because they have the same id and fingerprint.
//
// The other parts follow the head: they may be applied only after the head was applied with the
// fingerprint of this request. Without this rule a longer request under a used key would lose its
// head as "id reused", but its other parts would be counted.
package wire
