package app

import (
	"context"
	"time"

	"github.com/countmill/countmill/admin"
	"github.com/countmill/countmill/reader"
	"github.com/countmill/countmill/store"
)

// A droppable cache forgets counters on request.
type droppable interface {
	store.Cache
	Drop(ctx context.Context, counters []string) error
}

// A past is totals as they were, read as a reader reads them.
type past struct {
	store store.Store
	cache droppable
}

func (p past) Counters(ctx context.Context, prefix, after string, limit int) ([]string, error) {
	view := p.store.View()
	defer view.Close()
	records, err := view.List(ctx, prefix, after, limit)
	names := make([]string, len(records))
	for i := range records {
		names[i] = records[i].Counter
	}
	return names, err
}

func (p past) Cached(ctx context.Context, counters []string) ([]admin.Cached, error) {
	found, err := p.cache.Get(ctx, counters)
	cached := make([]admin.Cached, len(found))
	for i, c := range found {
		cached[i] = admin.Cached{Counter: c.Counter, Total: c.Total, AsOf: c.AsOf}
	}
	return cached, err
}

func (p past) Drop(ctx context.Context, counters []string) error { return p.cache.Drop(ctx, counters) }

// Now is the store's time, or the machine's if the store has none.
func (p past) Now(ctx context.Context) (time.Time, error) {
	checked, err := p.store.Check(ctx)
	if checked.At.IsZero() {
		checked.At = time.Now()
	}
	return checked.At, err
}

// keptPast is how much of the past a store is asked for; Datastore keeps an hour.
const keptPast = 50 * time.Minute

func (p past) At(ctx context.Context, counter string, moment time.Time) (total int64, known bool, err error) {
	s, ok := p.store.(interface{ ViewAt(time.Time) store.View })
	if !ok || time.Since(moment) > keptPast {
		return 0, false, nil
	}
	view := s.ViewAt(moment)
	if view == nil {
		return 0, false, nil
	}
	r, err := reader.New(oneView{p.store, view}, nil, reader.Config{Remember: 1})
	if err != nil {
		return 0, false, err
	}
	totals, err := r.Totals(ctx, []string{counter}, 0)
	if err != nil {
		return 0, false, err
	}
	return totals[0].Total, true, nil
}

// oneView is a store that shows one moment. Whether it is the right one was asked before.
type oneView struct {
	reader.Store
	view store.View
}

func (s oneView) View() store.View { return s.view }

func (oneView) Check(context.Context) (store.Checked, error) { return store.Checked{}, nil }
