package datastore

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/countmill/countmill/store"

	pb "cloud.google.com/go/datastore/apiv1/datastorepb"
)

const (
	// maxPayload is the most bytes of a payload in one entity; an entity may have 1 MiB.
	maxPayload = 900 << 10
	// maxText is the most bytes of the other properties.
	maxText = 32 << 10
)

// PutDeadLetters writes dead letters. It writes the chunks of a large letter before the letter that
// names them, and a chunk's key has a hash of its content. So no reader ever sees a part of a letter.
func (s *Store) PutDeadLetters(ctx context.Context, letters []store.DeadLetter) error {
	ctx, cancel, err := s.call(ctx) // not write: a process that only reads totals may ask for a replay
	if err != nil {
		return err
	}
	defer cancel()
	var mutations, heads []*pb.Mutation
	for i := range letters {
		chunks, head := s.letter(&letters[i])
		mutations, heads = append(mutations, chunks...), append(heads, head)
		for j := range letters[i].DeadLetterRefs {
			mutations = append(mutations, s.refMutation(&letters[i].DeadLetterRefs[j]))
		}
	}
	// The letters last: their chunks and their dead-letter references are there then.
	if err := s.commitLots(ctx, append(mutations, heads...)); err != nil {
		return s.explain("bury", err)
	}
	return s.confirm(ctx, "bury")
}

func (s *Store) letter(d *store.DeadLetter) (chunks []*pb.Mutation, head *pb.Mutation) {
	sum := sha256.Sum256(d.Payload)
	properties := map[string]*pb.Value{
		"source": text(clean(d.Source)), "time": instant(d.Time), "reason": text(clean(d.Reason)),
		"maybe": boolean(d.Maybe), "at": instant(d.At), "sha256": text(hex.EncodeToString(sum[:])), "chunks": integer(0),
	}
	if len(d.Payload) <= maxPayload {
		properties["payload"] = blob(d.Payload)
	} else {
		refs := chunkRefs(d.Key, sum[:], (len(d.Payload)+maxPayload-1)/maxPayload)
		for i, r := range refs {
			chunk := d.Payload[i*maxPayload : min((i+1)*maxPayload, len(d.Payload))]
			chunks = append(chunks, s.replace(r, map[string]*pb.Value{"payload": blob(chunk)}))
		}
		properties["chunks"] = integer(int64(len(refs)))
	}
	return chunks, s.replace(ref{kindDead, d.Key}, properties)
}

func chunkRefs(key string, sum []byte, n int) []ref {
	refs := make([]ref, n)
	for i := range refs {
		refs[i] = ref{kindChunk, key + ":" + hex.EncodeToString(sum[:8]) + ":" + strconv.Itoa(i)}
	}
	return refs
}

// clean makes text storable: a letter that cannot be written would be retried for ever.
func clean(v string) string {
	if len(v) > maxText {
		v = v[:maxText]
	}
	return strings.ToValidUTF8(v, "\ufffd")
}

// DeleteDeadLetters removes dead letters, then their chunks: an existing letter has all its chunks. If
// the process is killed in between, chunks remain, and do no harm.
func (s *Store) DeleteDeadLetters(ctx context.Context, keys []string) error {
	ctx, cancel, err := s.call(ctx) // not write: a process that only reads totals may discard letters
	if err != nil {
		return err
	}
	defer cancel()
	var mutations []*pb.Mutation
	for lot := range slices.Chunk(keys, maxDeadLetters) {
		heads, err := s.lookupAll(ctx, deadRefs(lot))
		if err != nil {
			return s.explain("look up dead letters", err)
		}
		for _, key := range lot {
			// The letter first: it no longer exists when its chunks go.
			mutations = append(mutations, s.remove(ref{kindDead, key}))
			refs, err := chunksOf(key, heads[ref{kindDead, key}])
			if err != nil {
				return err
			}
			for _, r := range refs {
				mutations = append(mutations, s.remove(r))
			}
		}
	}
	if err := s.commitLots(ctx, mutations); err != nil {
		return s.explain("discard dead letters", err)
	}
	return s.confirm(ctx, "discard dead letters")
}

// maxDeadLetters is the most letters of one look-up: each may have 900 KiB.
const maxDeadLetters = 10

func deadRefs(keys []string) []ref {
	refs := make([]ref, len(keys))
	for i, key := range keys {
		refs[i] = ref{kindDead, key}
	}
	return refs
}

// GetDeadLetters returns the dead letters with these keys. It omits keys without a letter.
func (s *Store) GetDeadLetters(ctx context.Context, keys []string) ([]store.DeadLetter, error) {
	ctx, cancel, err := s.call(ctx)
	if err != nil {
		return nil, err
	}
	defer cancel()
	var letters []store.DeadLetter
	for lot := range slices.Chunk(keys, maxDeadLetters) {
		heads, err := s.lookupAll(ctx, deadRefs(lot))
		if err != nil {
			return nil, s.explain("look up dead letters", err)
		}
		for _, key := range lot {
			e := heads[ref{kindDead, key}]
			if e == nil {
				continue
			}
			d, err := s.readDeadLetter(ctx, e)
			if err != nil {
				return nil, err
			}
			letters = append(letters, d)
		}
	}
	return letters, s.confirm(ctx, "look up dead letters")
}

// ListDeadLetters returns up to limit dead letters in the order of their keys, after the key after.
func (s *Store) ListDeadLetters(ctx context.Context, after string, limit int) ([]store.DeadLetter, error) {
	ctx, cancel, err := s.call(ctx)
	if err != nil {
		return nil, err
	}
	defer cancel()
	if limit <= 0 {
		return nil, nil
	}
	var heads []*pb.Entity
	_, err = s.query(ctx, nil, span{kind: kindDead, past: after}, min(limit, math.MaxInt32), func(e *pb.Entity) error {
		heads = append(heads, e)
		return nil
	})
	if err != nil {
		return nil, s.explain("list dead letters", err)
	}
	letters := make([]store.DeadLetter, len(heads))
	for i, e := range heads {
		if letters[i], err = s.readDeadLetter(ctx, e); err != nil {
			return nil, err
		}
	}
	return letters, nil
}

func (s *Store) readDeadLetter(ctx context.Context, e *pb.Entity) (store.DeadLetter, error) {
	f := fields{entity: e}
	d := store.DeadLetter{
		Key: refOf(e.GetKey()).name, Source: f.text("source"), Time: f.instant("time"), Reason: f.text("reason"),
		Maybe: f.boolean("maybe"), At: f.instant("at"),
	}
	refs, err := chunksOf(d.Key, e)
	if err != nil {
		return d, err
	}
	if len(refs) == 0 {
		d.Payload = f.blob("payload")
		return d, f.err
	}
	d.Payload, err = s.readChunks(ctx, refs)
	if got := sha256.Sum256(d.Payload); err == nil && hex.EncodeToString(got[:]) != f.text("sha256") {
		err = fmt.Errorf("dead letter %q: its chunks do not make up its payload", d.Key)
	}
	return d, cmp.Or(err, f.err)
}

// chunksOf returns the keys of a letter's chunks. A small letter, and a missing one, has none.
func chunksOf(key string, e *pb.Entity) ([]ref, error) {
	if e == nil {
		return nil, nil
	}
	f := fields{entity: e}
	chunks, sum := f.integer("chunks"), f.text("sha256")
	if chunks == 0 {
		return nil, f.err
	}
	want, err := hex.DecodeString(sum)
	if f.err != nil || err != nil || len(want) != sha256.Size || chunks < 0 || chunks > maxKeys {
		return nil, fmt.Errorf("dead letter %q names %d chunks of %q: %w", key, chunks, sum, f.err)
	}
	return chunkRefs(key, want, int(chunks)), nil
}

func (s *Store) readChunks(ctx context.Context, refs []ref) ([]byte, error) {
	found, err := s.lookupAll(ctx, refs)
	if err != nil {
		return nil, s.explain("look up the chunks of a dead letter", err)
	}
	var payload []byte
	for _, r := range refs {
		e := found[r]
		if e == nil {
			return nil, fmt.Errorf("chunk %q of a dead letter is gone", r.name)
		}
		f := fields{entity: e}
		payload = append(payload, f.blob("payload")...)
		if f.err != nil {
			return nil, f.err
		}
	}
	return payload, nil
}
