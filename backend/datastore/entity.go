package datastore

import (
	"fmt"
	"strconv"
	"time"

	"github.com/countmill/countmill/store"

	pb "cloud.google.com/go/datastore/apiv1/datastorepb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/countmill/countmill/wire"
)

// The kinds. They share a prefix, because Google's own example of a sharded counter has a kind Counter
// that is keyed by the counter's name.
const (
	kindCounter    = "CountmillCounter"
	kindShard      = "CountmillShard"
	kindApplied    = "CountmillApplied"
	kindDead       = "CountmillDead"
	kindChunk      = "CountmillDeadChunk"
	kindWorker     = "CountmillWorker"
	kindMeta       = "CountmillMeta"
	kindProbe      = "CountmillProbe"
	kindSeries     = "CountmillSeries"
	kindIndexRange = "CountmillIndexRange"
	kindRemainder  = "CountmillRemainder"
	kindJournal    = "CountmillJournal"
	kindRow        = "CountmillJournalRow"
)

// A ref is a key without its partition.
type ref struct{ kind, name string }

func refOf(k *pb.Key) ref {
	path := k.GetPath()
	if len(path) != 1 {
		return ref{}
	}
	return ref{path[0].GetKind(), path[0].GetName()}
}

func (s *Store) key(r ref) *pb.Key {
	return &pb.Key{
		PartitionId: s.partition(),
		Path:        []*pb.Key_PathElement{{Kind: r.kind, IdType: &pb.Key_PathElement_Name{Name: r.name}}},
	}
}

// partition returns nil for the default namespace, as Google's client does.
func (s *Store) partition() *pb.PartitionId {
	if s.cfg.Namespace == "" {
		return nil
	}
	return &pb.PartitionId{NamespaceId: s.cfg.Namespace}
}

// shardRef returns the key of a shard; hash is the shard's wire.ShardHash.
func shardRef(hash uint64, counter string, shard int) ref {
	name := append(hashed(hash, counter, 3), ':')
	return ref{kindShard, string(strconv.AppendInt(name, int64(shard), 10))}
}

// hashed returns the beginning of a key, with room for more bytes after a colon.
func hashed(hash uint64, counter string, more int) []byte {
	const digits = "0123456789abcdef"
	name := make([]byte, 0, 8+1+len(counter)+1+more)
	for shift := 60; shift >= 32; shift -= 4 {
		name = append(name, digits[hash>>shift&0xf])
	}
	return append(append(name, ':'), counter...)
}

// readerRef returns the key of the entity that a reader asks for.
func readerRef(k store.Key) ref {
	if k.Shard == store.RecordKey {
		return ref{kindCounter, k.Counter}
	}
	return shardRef(wire.ShardHash(k.Counter, k.Shard), k.Counter, k.Shard)
}

// Properties are not indexed. An index costs a write, and an index on times or counts would limit the
// whole kind to 500 writes a second.

func integer(n int64) *pb.Value {
	return &pb.Value{ExcludeFromIndexes: true, ValueType: &pb.Value_IntegerValue{IntegerValue: n}}
}

func indexedInteger(n int64) *pb.Value {
	return &pb.Value{ValueType: &pb.Value_IntegerValue{IntegerValue: n}}
}

func text(v string) *pb.Value {
	return &pb.Value{ExcludeFromIndexes: true, ValueType: &pb.Value_StringValue{StringValue: v}}
}

func indexedText(v string) *pb.Value {
	return &pb.Value{ValueType: &pb.Value_StringValue{StringValue: v}}
}

func blob(v []byte) *pb.Value {
	return &pb.Value{ExcludeFromIndexes: true, ValueType: &pb.Value_BlobValue{BlobValue: v}}
}

func boolean(v bool) *pb.Value {
	return &pb.Value{ExcludeFromIndexes: true, ValueType: &pb.Value_BooleanValue{BooleanValue: v}}
}

// instant returns null for the zero time.
func instant(t time.Time) *pb.Value {
	if t.IsZero() {
		return &pb.Value{ExcludeFromIndexes: true, ValueType: &pb.Value_NullValue{}}
	}
	return &pb.Value{ExcludeFromIndexes: true, ValueType: &pb.Value_TimestampValue{
		TimestampValue: timestamppb.New(t.Truncate(time.Microsecond)),
	}}
}

// indexedInstant returns an indexed time, for properties that queries use.
func indexedInstant(t time.Time) *pb.Value {
	v := instant(t)
	v.ExcludeFromIndexes = false
	return v
}

// fields reads the properties of an entity, and keeps the first error.
type fields struct {
	entity *pb.Entity
	err    error
}

func (f *fields) wrong(name, want string) {
	if f.err == nil {
		r := refOf(f.entity.GetKey())
		f.err = fmt.Errorf("entity %s %q: property %s is not %s: another program wrote it", r.kind, r.name, name, want)
	}
}

// has reports whether the property exists and is not null.
func (f *fields) has(name string) bool {
	v := f.entity.GetProperties()[name]
	_, null := v.GetValueType().(*pb.Value_NullValue)
	return v != nil && !null
}

func (f *fields) integer(name string) int64 {
	v, ok := f.entity.GetProperties()[name].GetValueType().(*pb.Value_IntegerValue)
	if !ok {
		f.wrong(name, "an integer")
		return 0
	}
	return v.IntegerValue
}

func (f *fields) text(name string) string {
	v, ok := f.entity.GetProperties()[name].GetValueType().(*pb.Value_StringValue)
	if !ok {
		f.wrong(name, "a string")
		return ""
	}
	return v.StringValue
}

// duration reads a positive duration in Go's notation.
func (f *fields) duration(name string) time.Duration {
	d, err := time.ParseDuration(f.text(name))
	if err != nil || d <= 0 {
		f.wrong(name, "a duration")
	}
	return d
}

func (f *fields) boolean(name string) bool {
	v, ok := f.entity.GetProperties()[name].GetValueType().(*pb.Value_BooleanValue)
	if !ok {
		f.wrong(name, "a boolean")
		return false
	}
	return v.BooleanValue
}

func (f *fields) blob(name string) []byte {
	v, ok := f.entity.GetProperties()[name].GetValueType().(*pb.Value_BlobValue)
	if !ok {
		f.wrong(name, "bytes")
		return nil
	}
	return v.BlobValue
}

func (f *fields) instant(name string) time.Time {
	switch v := f.entity.GetProperties()[name].GetValueType().(type) {
	case *pb.Value_NullValue:
		return time.Time{}
	case *pb.Value_TimestampValue:
		return v.TimestampValue.AsTime()
	}
	f.wrong(name, "a time")
	return time.Time{}
}

// insert fails the commit if the entity exists.
func (s *Store) insert(r ref, properties map[string]*pb.Value) *pb.Mutation {
	return &pb.Mutation{Operation: &pb.Mutation_Insert{Insert: &pb.Entity{Key: s.key(r), Properties: properties}}}
}

// replace writes the entity with these properties alone.
func (s *Store) replace(r ref, properties map[string]*pb.Value) *pb.Mutation {
	return &pb.Mutation{Operation: &pb.Mutation_Upsert{Upsert: &pb.Entity{Key: s.key(r), Properties: properties}}}
}

func (s *Store) remove(r ref) *pb.Mutation {
	return &pb.Mutation{Operation: &pb.Mutation_Delete{Delete: s.key(r)}}
}
