package protocol

import (
	"context"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/engine"
)

// View opens a view. It costs nothing until the first call.
func (s *Store) View() store.View { return s.view() }

func (s *Store) view() *view { return &view{store: s, View: s.engine.View()} }

// A view is a view of the engine.
type view struct {
	engine.View
	store *Store
}

// keys returns up to limit keys of a range.
func (v *view) keys(ctx context.Context, r engine.Range, limit int) (keys []engine.Key, err error) {
	for row, err := range v.store.scan(ctx, v, r) {
		if err != nil {
			return nil, err
		}
		if keys = append(keys, keyOf(row)); len(keys) == limit {
			break
		}
	}
	return keys, nil
}

func (v *view) ReadTime() time.Time { return v.At() }

// ofTotals are the fields that totals need. Buckets and grouped parts stay in the database.
var ofTotals = append([]engine.FieldID{fieldCount, fieldBucketed}, recordFields...)

// Lookup of no keys fixes the moment.
func (v *view) Lookup(ctx context.Context, keys []store.Key) ([]store.Value, error) {
	if len(keys) == 0 {
		_, err := v.Get(ctx, nil)
		return nil, err
	}
	wanted, values := make([]engine.Key, len(keys)), make([]store.Value, len(keys))
	for i, k := range keys {
		if wanted[i] = recordKey(k.Counter); k.Shard != store.RecordKey {
			wanted[i] = v.store.shardKey(k.Counter, k.Shard)
		}
	}
	err := v.store.each(ctx, v, wanted, ofTotals, func(i int, r *engine.Row) { values[i] = valueOf(r) })
	if err != nil {
		return nil, err
	}
	return values, nil
}

// valueOf reads a record or a shard.
func valueOf(r *engine.Row) store.Value {
	v := store.Value{Exists: r.Exists}
	if r.Key.Kind == kindRecord {
		v.Shards, v.Remainder, v.Reset = int(r.Int64(fieldShards)), r.Int(fieldRemainder), resetOf(r)
	} else {
		v.Count, v.Bucketed = r.Int(fieldCount), r.Int(fieldBucketed)
	}
	return v
}

// resetOf reads what resets have written into a record.
func resetOf(r *engine.Row) store.ResetState {
	return store.ResetState{Baseline: r.Int(fieldBaseline), ResetAt: timeOf(r.Int64(fieldResetAt)), DeletedAt: timeOf(r.Int64(fieldDeletedAt))}
}

// List scans records.
func (v *view) List(ctx context.Context, prefix, after string, limit int) (records []store.Record, err error) {
	if limit <= 0 || !utf8.ValidString(prefix) || !utf8.ValidString(after) {
		return nil, nil // names are UTF-8
	}
	r := engine.Range{Kind: kindRecord, Prefix: prefix, From: engine.Key{Name: after}, After: true, Page: limit}
	for row, err := range v.store.scan(ctx, v, r, recordFields...) {
		if err != nil {
			return nil, err
		}
		value := valueOf(row)
		records = append(records, store.Record{Counter: strings.Clone(row.Key.Name), Shards: value.Shards, Reset: value.Reset, Remainder: value.Remainder})
		if len(records) == limit {
			break
		}
	}
	return records, nil
}
