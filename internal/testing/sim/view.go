package sim

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/internal/testing/sim/fakestore"
	"github.com/countmill/countmill/wire"
)

// View opens a view.
func (s *simStore) View() store.View {
	return &view{simStore: s, fake: s.fake.View().(*fakestore.View)}
}

type view struct {
	*simStore
	fake  *fakestore.View
	read  bool      // from
	began time.Time // the first call
}

func (v *view) Lookup(ctx context.Context, keys []store.Key) (values []store.Value, err error) {
	keys = slices.Clone(keys)
	names := make([]string, 0, len(keys))
	for _, k := range keys {
		names = append(names, k.Counter, string(rune(k.Shard+1)))
	}
	op := "lookup"
	v.begin()
	if v.read {
		op = "further lookup"
	}
	v.read = true
	err = v.call(ctx, op, stringsKey(names), ReadFails,
		func() string { return keysText(keys) }, func() string { return valuesText(keys, values) }, func() (err error) {
			values, err = v.fake.Lookup(background, keys)
			return err
		})
	return values, err
}

func (v *view) List(ctx context.Context, prefix, after string, limit int) (records []store.Record, err error) {
	v.begin()
	v.read = true
	err = v.call(ctx, "list", stringsKey([]string{prefix, after}), ReadFails,
		func() string { return prefix + "* after " + after }, func() string { return fmt.Sprint(records) }, func() (err error) {
			records, err = v.fake.List(background, prefix, after, limit)
			return err
		})
	return records, err
}

func (v *view) Series(ctx context.Context, of []store.Record, from, to wire.Minute) (found [][]store.Bucket, err error) {
	v.begin()
	v.read = true
	counters := make([]string, len(of))
	for i := range of {
		counters[i] = of[i].Counter
	}
	err = v.call(ctx, "series", stringsKey(counters), ReadFails,
		func() string { return fmt.Sprint(counters) }, func() string { return fmt.Sprint(found) }, func() (err error) {
			found, err = v.fake.Series(background, of, from, to)
			return err
		})
	return found, err
}

// begin notes when the first call began. The quicker the call, the more exact is the store's time in
// its answer.
func (v *view) begin() {
	if !v.read {
		v.began = v.wall()
	}
}

// ReadTime is asked for when the reader learns from it, or has.
func (v *view) ReadTime() time.Time {
	v.p.taught(v.began)
	return v.fake.ReadTime()
}

func (v *view) Close() { v.fake.Close() }
