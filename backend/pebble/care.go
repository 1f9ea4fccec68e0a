package pebble

import (
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	pebbledb "github.com/cockroachdb/pebble/v2"

	"github.com/countmill/countmill/store"
)

// A deadRecord is the JSON in front of a dead letter's payload. Its length precedes it as an unsigned
// varint. Times are microseconds since 1970.
type deadRecord struct {
	Source string `json:"source"`
	Time   int64  `json:"time"`
	Reason string `json:"reason"`
	Maybe  bool   `json:"maybe,omitempty"`
	At     int64  `json:"at"`
}

// PutDeadLetters writes dead letters in one synced batch. It replaces letters with the same key.
func (s *Store) PutDeadLetters(ctx context.Context, letters []store.DeadLetter) error {
	if err := s.enter(); err != nil {
		return err
	}
	defer s.closing.RUnlock()
	b := s.db.NewBatch()
	defer b.Close()
	for i := range letters {
		// In the letter's own batch: whoever finds the message's completion marker finds them too.
		if err := s.putDeadLetterRefs(b, letters[i].DeadLetterRefs); err != nil {
			return err
		}
		value, err := encodeDead(&letters[i])
		if err != nil {
			return err
		}
		if err := b.Set(s.keys.named(nil, kindDead, letters[i].Key), value, nil); err != nil {
			return err
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return s.commit(b)
}

// DeleteDeadLetters removes dead letters. It does not sync: after a crash a removed letter may exist
// again, and its reader handles it once more.
func (s *Store) DeleteDeadLetters(ctx context.Context, keys []string) error {
	if err := s.enter(); err != nil {
		return err
	}
	defer s.closing.RUnlock()
	b := s.db.NewBatch()
	defer b.Close()
	for _, key := range keys {
		if err := b.Delete(s.keys.named(nil, kindDead, key), nil); err != nil {
			return err
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return b.Commit(pebbledb.NoSync)
}

// ListDeadLetters returns up to limit dead letters in the order of their keys, after the key after.
func (s *Store) ListDeadLetters(ctx context.Context, after string, limit int) ([]store.DeadLetter, error) {
	if err := s.enter(); err != nil {
		return nil, err
	}
	defer s.closing.RUnlock()
	if err := ctx.Err(); err != nil || limit <= 0 {
		return nil, err
	}
	var letters []store.DeadLetter
	err := s.scan(kindDead, after, func(key string, value []byte) (bool, error) {
		d, err := decodeDead(key, value)
		if err != nil {
			return false, fmt.Errorf("dead letter %q: %w", key, err)
		}
		letters = append(letters, d)
		return len(letters) < limit, ctx.Err()
	})
	if err != nil {
		return nil, err
	}
	return letters, nil
}

// GetDeadLetters returns the dead letters with these keys. It omits keys without a letter.
func (s *Store) GetDeadLetters(ctx context.Context, keys []string) ([]store.DeadLetter, error) {
	if err := s.enter(); err != nil {
		return nil, err
	}
	defer s.closing.RUnlock()
	var letters []store.DeadLetter
	for _, key := range keys {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		d, found, err := s.deadLetter(key)
		if err != nil {
			return nil, fmt.Errorf("dead letter %q: %w", key, err)
		}
		if found {
			letters = append(letters, d)
		}
	}
	return letters, ctx.Err()
}

func (s *Store) deadLetter(key string) (d store.DeadLetter, found bool, err error) {
	value, closer, err := s.db.Get(s.keys.named(nil, kindDead, key))
	if errors.Is(err, pebbledb.ErrNotFound) {
		return d, false, nil
	}
	if err != nil {
		return d, false, err
	}
	d, err = decodeDead(key, value)
	return d, true, errors.Join(err, closer.Close())
}

func encodeDead(d *store.DeadLetter) ([]byte, error) {
	header, err := json.Marshal(deadRecord{d.Source, d.Time.UnixMicro(), d.Reason, d.Maybe, d.At.UnixMicro()})
	if err != nil {
		return nil, err
	}
	value := binary.AppendUvarint(make([]byte, 0, len(header)+len(d.Payload)+4), uint64(len(header)))
	return append(append(value, header...), d.Payload...), nil
}

func decodeDead(key string, value []byte) (store.DeadLetter, error) {
	length, n := binary.Uvarint(value)
	if n <= 0 || length > uint64(len(value)-n) {
		return store.DeadLetter{}, errors.New("cut off")
	}
	header, payload := value[n:n+int(length)], value[n+int(length):]
	var r deadRecord
	if err := json.Unmarshal(header, &r); err != nil {
		return store.DeadLetter{}, err
	}
	return store.DeadLetter{
		Key: key, Payload: append([]byte(nil), payload...), Source: r.Source, Reason: r.Reason, Maybe: r.Maybe,
		Time: time.UnixMicro(r.Time).UTC(), At: time.UnixMicro(r.At).UTC(),
	}, nil
}

// A workerRecord is a worker's report about itself, in JSON. Times are microseconds since 1970; the lag
// and the skew are in nanoseconds.
type workerRecord struct {
	Lag        int64 `json:"lag"`
	Stalled    bool  `json:"stalled,omitempty"`
	Skew       int64 `json:"skew,omitempty"`
	LastCommit int64 `json:"last_commit"`
	Expires    int64 `json:"expires"`
	Entries    int64 `json:"entries"`
	Commits    int64 `json:"commits"`
	Settings   int64 `json:"settings,omitempty"`

	Increments  int64        `json:"increments,omitempty"`
	Entities    int64        `json:"entities,omitempty"`
	Duplicates  int64        `json:"duplicates,omitempty"`
	DeadLetters int64        `json:"dead_letters,omitempty"`
	Busiest     []store.Busy `json:"busiest,omitempty"`

	LastDeadLetter int64             `json:"last_dead_letter,omitempty"`
	AtLimit        []string          `json:"at_limit,omitempty"`
	Setup          map[string]string `json:"setup,omitempty"`
}

func workerRecordOf(w *store.Worker) workerRecord {
	r := workerRecord{
		Lag: int64(w.Lag), Stalled: w.Stalled, Skew: int64(w.Skew), LastCommit: w.LastCommit.UnixMicro(), Expires: w.Expires.UnixMicro(),
		Entries: w.Entries, Commits: w.Commits, Settings: w.Settings,
		Increments: w.Increments, Entities: w.Entities, Duplicates: w.Duplicates, DeadLetters: w.DeadLetters, Busiest: w.Busiest,
		AtLimit: w.AtLimit, Setup: w.Setup,
	}
	if !w.LastDeadLetter.IsZero() {
		r.LastDeadLetter = w.LastDeadLetter.UnixMicro()
	}
	return r
}

func (r *workerRecord) worker(id string) store.Worker {
	w := store.Worker{
		ID: id, Lag: time.Duration(r.Lag), Stalled: r.Stalled, Skew: time.Duration(r.Skew), LastCommit: time.UnixMicro(r.LastCommit).UTC(),
		Expires: time.UnixMicro(r.Expires).UTC(), Entries: r.Entries, Commits: r.Commits, Settings: r.Settings,
		Increments: r.Increments, Entities: r.Entities, Duplicates: r.Duplicates, DeadLetters: r.DeadLetters, Busiest: r.Busiest,
		AtLimit: r.AtLimit, Setup: r.Setup,
	}
	if r.LastDeadLetter != 0 {
		w.LastDeadLetter = time.UnixMicro(r.LastDeadLetter).UTC()
	}
	return w
}

// Beat replaces the worker's record. It does not sync: the next heartbeat repeats the record.
func (s *Store) Beat(ctx context.Context, w store.Worker) error {
	if err := s.enter(); err != nil {
		return err
	}
	defer s.closing.RUnlock()
	value, err := json.Marshal(workerRecordOf(&w))
	if err != nil {
		return err
	}
	b := s.db.NewBatch()
	defer b.Close()
	if err := b.Set(s.keys.named(nil, kindWorker, w.ID), value, nil); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return b.Commit(pebbledb.NoSync)
}

// Workers returns the records of all workers in the order of their ids.
func (s *Store) Workers(ctx context.Context) ([]store.Worker, error) {
	if err := s.enter(); err != nil {
		return nil, err
	}
	defer s.closing.RUnlock()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	var workers []store.Worker
	err := s.scan(kindWorker, "", func(id string, value []byte) (bool, error) {
		var r workerRecord
		if err := json.Unmarshal(value, &r); err != nil {
			return false, fmt.Errorf("worker %q: %w", id, err)
		}
		workers = append(workers, r.worker(id))
		return true, ctx.Err()
	})
	if err != nil {
		return nil, err
	}
	return workers, nil
}

// Check returns ErrReadOnly while Pebble's background writes fail. It also fails when the directory was
// removed or replaced, because folds would go to files that nobody can open again. Once Pebble has read
// damaged data, Check fails until the process ends; after a missing file, until the file is back.
//
// Check writes the commit count to its file. It also moves ForgetBefore by the time that the process
// has run since the last call.
func (s *Store) Check(ctx context.Context) (store.Checked, error) {
	if err := s.enter(); err != nil {
		return store.Checked{}, err
	}
	defer s.closing.RUnlock()
	if err := cmp.Or(ctx.Err(), s.Readable(), s.settings.settle(ctx)); err != nil {
		return store.Checked{}, err
	}
	err := s.Kept()
	if errors.Is(err, store.ErrOtherDatabase) {
		return store.Checked{}, err
	}
	if err != nil {
		err = fmt.Errorf("%w: %w", store.ErrReadOnly, err)
	}
	return store.Checked{Settings: s.advance()}, err
}
