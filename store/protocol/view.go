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

// list reads up to limit rows of a range; 0: all.
func list[T any](ctx context.Context, v *view, r engine.Range, limit int, read func(*engine.Row) (T, error), fields ...engine.FieldID) (all []T, err error) {
	for row, err := range v.store.scan(ctx, v, r, fields...) {
		var x T
		if err == nil {
			x, err = read(row)
		}
		if err != nil {
			return nil, err
		}
		if all = append(all, x); len(all) == limit {
			break
		}
	}
	return all, nil
}

// keys returns up to limit keys of a range.
func (v *view) keys(ctx context.Context, r engine.Range, limit int) ([]engine.Key, error) {
	return list(ctx, v, r, limit, func(row *engine.Row) (engine.Key, error) { return keyOf(row), nil })
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
func (v *view) List(ctx context.Context, prefix, after string, limit int) ([]store.Record, error) {
	if limit <= 0 || !utf8.ValidString(prefix) || !utf8.ValidString(after) {
		return nil, nil // names are UTF-8
	}
	r := engine.Range{Kind: kindRecord, Prefix: prefix, From: engine.Key{Name: after}, After: true, Page: limit}
	return list(ctx, v, r, limit, func(row *engine.Row) (store.Record, error) {
		value := valueOf(row)
		return store.Record{Counter: strings.Clone(row.Key.Name), Shards: value.Shards, Reset: value.Reset, Remainder: value.Remainder}, nil
	}, recordFields...)
}
