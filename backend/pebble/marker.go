package pebble

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"time"

	pebbledb "github.com/cockroachdb/pebble/v2"

	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/wire"
)

// A marker has 24 bytes: fingerprint, fold and time. A reset's marker, which its id identifies, has the
// removed amount, the moment and the time instead; a take's marker is in sequence.go.
const markerLen = 24

func encodeMarker(dst []byte, m *store.Marker) []byte {
	dst = binary.BigEndian.AppendUint64(dst, uint64(m.Fingerprint))
	dst = binary.BigEndian.AppendUint64(dst, m.Fold)
	dst = binary.BigEndian.AppendUint64(dst, uint64(m.At.UnixMicro()))
	return dst
}

func decodeMarker(id wire.PartID, b []byte) (store.Marker, error) {
	if len(b) != markerLen {
		return store.Marker{}, fmt.Errorf("marker %s has %d bytes", id, len(b))
	}
	m := store.Marker{ID: id, At: time.UnixMicro(int64(binary.BigEndian.Uint64(b[16:]))).UTC()}
	if c := id.Class(); c != wire.ResetClass && c != wire.SequenceClass {
		m.Fingerprint, m.Fold = wire.Fingerprint(binary.BigEndian.Uint64(b)), binary.BigEndian.Uint64(b[8:])
	}
	return m, nil
}

// encodeDone encodes the marker of a reset; at is the marker's time.
func encodeDone(dst []byte, d store.ResetResult, at time.Time) []byte {
	dst = fromExact(d.Removed).encode(dst)
	dst = binary.BigEndian.AppendUint64(dst, microseconds(d.At))
	return binary.BigEndian.AppendUint64(dst, uint64(at.UnixMicro()))
}

func decodeDone(id wire.PartID, b []byte) (store.ResetResult, error) {
	n := len(b) - 16
	if n < 0 {
		return store.ResetResult{}, fmt.Errorf("marker %s of a reset has %d bytes", id, len(b))
	}
	removed, err := decodeSum(b[:n])
	return store.ResetResult{Removed: removed.exact(), At: moment(binary.BigEndian.Uint64(b[n:]))}, err
}

// loadEpochs finds the epochs that contain markers, with one seek for each.
func (s *Store) loadEpochs() error {
	first := s.keys.kind(nil, kindMarker)
	iter, err := s.db.NewIter(&pebbledb.IterOptions{LowerBound: first, UpperBound: after(first)})
	if err != nil {
		return err
	}
	s.epochs = nil
	for ok := iter.First(); ok; {
		e := epoch(binary.BigEndian.Uint16(iter.Key()[len(first):]))
		s.epochs = append(s.epochs, e)
		if e == lastEpoch {
			break
		}
		ok = iter.SeekGE(s.keys.epoch(nil, e+1))
	}
	return iter.Close()
}

func (s *Store) addEpochLocked(e epoch) {
	if at, found := slices.BinarySearch(s.epochs, e); !found {
		s.epochs = slices.Insert(s.epochs, at, e)
	}
}

// Sweep drops the markers of an epoch when Settings.ForgetBefore is past the epoch's end by
// store.MarkerSlack. The machine's clock does not decide that. Sweep also drops workers that have sent
// no heartbeat for a day. Call it about every hour. Without calls, a fold sweeps after a day.
func (s *Store) Sweep(ctx context.Context) error {
	if err := s.enter(); err != nil {
		return err
	}
	defer s.closing.RUnlock()
	if err := s.lockMarking(ctx); err != nil {
		return err
	}
	defer s.unlockMarking()
	return s.sweepLocked()
}

func (s *Store) sweepDailyLocked() error {
	if s.cfg.age()-s.swept > 24*time.Hour {
		return s.sweepLocked()
	}
	return nil
}

func (s *Store) sweepLocked() error {
	s.swept = s.cfg.age()
	settings := s.advance()
	b := s.db.NewBatch()
	defer b.Close()
	ended := 0
	for ended < len(s.epochs) && s.epochs[ended].over(settings.ForgetBefore) {
		ended++
	}
	if ended > 0 {
		first, last := s.keys.epoch(nil, 0), s.keys.epoch(nil, s.epochs[ended-1])
		if err := b.DeleteRange(first, after(last), nil); err != nil {
			return err
		}
	}
	if err := s.changeMeta(b, func(m *meta) { m.Settings = encodeSettings(settings) }); err != nil {
		return err
	}
	if err := s.sweepWorkers(b, s.cfg.clock()); err != nil {
		return err
	}
	if err := s.sweepDeadLetterRefs(b, settings.ForgetBefore); err != nil {
		return err
	}
	// No sync: if a crash undoes it, the next sweep repeats it.
	if err := b.Commit(pebbledb.NoSync); err != nil {
		return err
	}
	if ended > 0 {
		s.epochs = slices.Delete(s.epochs, 0, ended)
		s.cfg.Logger.LogAttrs(context.Background(), slog.LevelInfo, "old markers dropped",
			slog.Int("epochs", ended), slog.Int("epochs_left", len(s.epochs)), slog.Time("forget_before", settings.ForgetBefore))
	}
	return nil
}

// over reports whether all markers of the epoch may be dropped.
func (e epoch) over(forgetBefore time.Time) bool {
	return e.end().Add(store.MarkerSlack).Before(forgetBefore)
}

// sweepWorkers drops the records of aggregators that ended long ago: each start of a process may leave
// one.
func (s *Store) sweepWorkers(b *pebbledb.Batch, now time.Time) error {
	return s.scan(kindWorker, "", func(id string, value []byte) (more bool, err error) {
		var w workerRecord
		if err := json.Unmarshal(value, &w); err != nil {
			return false, fmt.Errorf("worker %q: %w", id, err)
		}
		if time.UnixMicro(w.Expires).Before(now.Add(-24 * time.Hour)) {
			return true, b.Delete(s.keys.named(nil, kindWorker, id), nil)
		}
		return true, nil
	})
}
