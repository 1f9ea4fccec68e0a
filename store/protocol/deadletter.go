package protocol

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/engine"
	"github.com/countmill/countmill/wire"
)

// maxText is the most bytes of a source and of a reason. A letter that cannot be written would be retried for ever.
const maxText = 32 << 10

func letterKey(key string) engine.Key { return engine.Key{Kind: kindLetter, Name: key} }

// PutDeadLetters writes references to letters, chunks and letters in this order, and in one commit if the limits allow: a letter that
// exists has all its chunks. The data of a letter is a line of JSON and the payload; of a payload in chunks, its beginning.
func (s *Store) PutDeadLetters(ctx context.Context, letters []store.DeadLetter) error {
	var changes []engine.Change
	for i := range letters {
		d := &letters[i]
		short := *d
		short.Source, short.Reason = d.Source[:min(len(d.Source), maxText)], d.Reason[:min(len(d.Reason), maxText)]
		head, err := json.Marshal(&short)
		if err != nil {
			return err
		}
		change := engine.Change{Key: letterKey(d.Key)}
		first, rest := d.Payload, []byte(nil)
		if half := s.limits.RowBytes / 2; half > 0 && len(first) > half {
			first, rest = first[:half], first[half:]
			change.Set = []engine.Field{field(fieldFingerprint, fingerprint(d.Payload))}
		} else {
			change.Unset = []engine.FieldID{fieldFingerprint}
		}
		change.Data = append(append(head, '\n'), first...)
		changes = append(changes, change)
		for part := uint32(0); len(rest) > 0; part++ {
			n := min(len(rest), s.limits.RowBytes)
			changes = append(changes, engine.Change{Key: chunkKey(d.Key, fingerprint(d.Payload), part), Data: rest[:n]})
			rest = rest[n:]
		}
		for j := range d.DeadLetterRefs {
			change, err := s.refChange(&d.DeadLetterRefs[j])
			if err != nil {
				return err
			}
			changes = append(changes, change)
		}
	}
	sortChanges(changes)
	return s.commit(ctx, false, changes)
}

func sortChanges(changes []engine.Change) {
	slices.SortStableFunc(changes, func(a, b engine.Change) int { return a.Key.Compare(b.Key) })
}

// fingerprint is never 0.
func fingerprint(payload []byte) int64 {
	sum := sha256.Sum256(payload)
	return int64(binary.BigEndian.Uint64(sum[:]) | 1)
}

// chunkKey returns the key of a chunk. Payloads of one letter share none.
func chunkKey(letter string, fingerprint int64, part uint32) engine.Key {
	sum := sha256.Sum256([]byte(letter))
	return engine.Key{Kind: kindChunk, Name: fmt.Sprintf("%s:%016x", hex.EncodeToString(sum[:]), uint64(fingerprint)), Part: part}
}

func chunksOf(letter string, fingerprint int64) engine.Range {
	return engine.Range{Kind: kindChunk, From: chunkKey(letter, fingerprint, 0), To: chunkKey(letter, fingerprint, 1<<24-1)}
}

// DeleteDeadLetters removes each letter together with its chunks.
func (s *Store) DeleteDeadLetters(ctx context.Context, keys []string) error {
	v := s.view()
	defer v.Close()
	rows, err := s.lettersIn(ctx, v, keys, fieldFingerprint)
	if err != nil {
		return err
	}
	var whole []engine.Key
	for i := range rows {
		switch f := rows[i].Int64(fieldFingerprint); {
		case f != 0: // in a commit of its own: a copy that is written meanwhile has all chunks or none
			chunks, err := v.keys(ctx, chunksOf(keys[i], f), math.MaxInt)
			if err == nil {
				err = s.commit(ctx, true, deletes(append(chunks, letterKey(keys[i]))...))
			}
			if err != nil {
				return err
			}
		case rows[i].Exists:
			whole = append(whole, letterKey(keys[i]))
		}
	}
	slices.SortFunc(whole, engine.Key.Compare)
	return s.commit(ctx, true, deletes(whole...))
}

// lettersIn reads the rows of letters.
func (s *Store) lettersIn(ctx context.Context, v engine.View, letters []string, fields ...engine.FieldID) ([]engine.Row, error) {
	keys := make([]engine.Key, len(letters))
	for i, letter := range letters {
		keys[i] = letterKey(letter)
	}
	return s.get(ctx, v, keys, fields...)
}

// GetDeadLetters returns the letters that exist.
func (s *Store) GetDeadLetters(ctx context.Context, keys []string) (letters []store.DeadLetter, err error) {
	v := s.view()
	defer v.Close()
	rows, err := s.lettersIn(ctx, v, keys, engine.Data, fieldFingerprint)
	for i := range rows {
		if err == nil && rows[i].Exists {
			letters, err = s.appendLetter(ctx, v, letters, keys[i], &rows[i])
		}
	}
	return letters, err
}

// ListDeadLetters returns letters in the order of their keys.
func (s *Store) ListDeadLetters(ctx context.Context, after string, limit int) (letters []store.DeadLetter, _ error) {
	if limit <= 0 {
		return nil, nil
	}
	v := s.view()
	defer v.Close()
	for row, err := range s.scan(ctx, v, engine.Range{Kind: kindLetter, From: letterKey(after), After: true, Page: limit}, engine.Data, fieldFingerprint) {
		if err == nil {
			letters, err = s.appendLetter(ctx, v, letters, strings.Clone(row.Key.Name), row)
		}
		if err != nil || len(letters) == limit {
			return letters, err
		}
	}
	return letters, nil
}

func (s *Store) appendLetter(ctx context.Context, v engine.View, letters []store.DeadLetter, key string, row *engine.Row) ([]store.DeadLetter, error) {
	letter := store.DeadLetter{Key: key}
	head, payload, _ := bytes.Cut(row.Data, []byte("\n"))
	if err := json.Unmarshal(head, &letter); err != nil {
		return letters, fmt.Errorf("dead letter %q: %w", key, err)
	}
	letter.Payload = bytes.Clone(payload)
	if f := row.Int64(fieldFingerprint); f != 0 {
		for row, err := range s.scan(ctx, v, chunksOf(key, f), engine.Data) {
			if err != nil {
				return letters, err
			}
			letter.Payload = append(letter.Payload, row.Data...)
		}
		if fingerprint(letter.Payload) != f {
			return letters, fmt.Errorf("dead letter %q: its chunks do not make up its payload", key)
		}
	}
	return append(letters, letter), nil
}

func (s *Store) refChange(r *store.DeadLetterRef) (engine.Change, error) {
	parts, err := binary.Append([]byte{}, binary.BigEndian, r.Parts)
	return engine.Change{
		Key: engine.Key{Kind: kindLetterRef, Name: string(r.Completion[:]) + r.Key}, Set: []engine.Field{s.dueOf(r.At, r.ExpireAt)},
		Data: parts,
	}, err
}

// DeadLetterRefs scans the names that begin with each id. Few messages have any, and their completion markers say so.
func (s *Store) DeadLetterRefs(ctx context.Context, completions []wire.PartID) (all []store.DeadLetterRef, _ error) {
	v := s.view()
	defer v.Close()
	for _, completion := range completions {
		prefix := string(completion[:])
		for row, err := range s.scan(ctx, v, engine.Range{Kind: kindLetterRef, From: engine.Key{Name: prefix}}, engine.Data, fieldDue) {
			if err != nil {
				return nil, err
			}
			letter, ok := strings.CutPrefix(row.Key.Name, prefix)
			if !ok {
				break
			}
			ref := store.DeadLetterRef{Completion: completion, Key: strings.Clone(letter)}
			ref.At, ref.ExpireAt = s.timesOf(row)
			ref.Parts = make([]store.DeadLetterPart, len(row.Data)/binary.Size(store.DeadLetterPart{}))
			if _, err := binary.Decode(row.Data, binary.BigEndian, ref.Parts); err != nil {
				return nil, err
			}
			all = append(all, ref)
		}
	}
	return all, nil
}
