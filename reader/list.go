package reader

import (
	"context"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/store"
)

// MaxPage is the most counters on one page of List.
const MaxPage = 1000

// A Page holds counters in byte order, all read at one moment.
type Page struct {
	Totals []Total
	// AsOf is that moment.
	AsOf time.Time
	// Overflowed are the counters of this page whose totals do not fit 64 bits. They are not in
	// Totals.
	Overflowed []string
	// Next is the value of after for the next page; empty at the end.
	Next string
}

// List returns at most limit counters (1 to MaxPage) whose names begin with prefix and come after
// after. It returns fewer if they have more shards together than 5,000, or if
// some were deleted: a page may be empty although others follow. It always reads the store. Its
// errors are those of Totals, but an overflowed counter does not fail a page.
func (r *Reader) List(ctx context.Context, prefix, after string, limit int) (Page, error) {
	return r.ListSince(ctx, prefix, after, limit, time.Time{})
}

// ListSince is List of a moment that is not before minAsOf, as TotalsSince has it.
func (r *Reader) ListSince(ctx context.Context, prefix, after string, limit int, minAsOf time.Time) (p Page, err error) {
	if err := checkList(prefix, after, limit); err != nil {
		return Page{}, err
	}
	err = reach(ctx, minAsOf, func() (time.Time, error) {
		p, err = r.listOnce(ctx, prefix, after, limit)
		return p.AsOf, err
	})
	return p, err
}

func (r *Reader) listOnce(ctx context.Context, prefix, after string, limit int) (Page, error) {
	if err := r.checkStore(ctx); err != nil {
		return Page{}, err
	}
	began := r.clock.Moment()
	view := r.store.View()
	defer view.Close()
	records, err := r.listRecords(ctx, view, prefix, after, limit+1) // one more shows whether a page follows
	if err != nil {
		return Page{}, err
	}
	r.clock.Learn(view.ReadTime(), began)
	page, next := r.cut(records, limit), ""
	if len(page) < len(records) {
		next = page[len(page)-1].Counter
	}
	listed, err := r.listed(ctx, page, view.ReadTime())
	if err != nil {
		return Page{}, err
	}
	rd := r.newReading(view)
	for _, rec := range listed {
		if err := rd.askRecorded(rec); err != nil {
			return Page{}, err
		}
	}
	if err := rd.run(ctx); err != nil {
		return Page{}, err
	}
	return r.page(rd, next), nil
}

func checkList(prefix, after string, limit int) error {
	for _, f := range []struct{ field, val string }{{"prefix", prefix}, {"after", after}} {
		switch {
		case len(f.val) > countmill.MaxCounterName:
			return &countmill.FieldError{Field: f.field, Problem: "is too long", Limit: "0 to 500 bytes"}
		case !utf8.ValidString(f.val):
			return &countmill.FieldError{Field: f.field, Problem: "is not valid UTF-8", Limit: "valid UTF-8"}
		}
	}
	if limit < 1 || limit > MaxPage {
		return &countmill.FieldError{Field: "limit", Problem: "is out of range", Limit: "1 to " + strconv.Itoa(MaxPage)}
	}
	return nil
}

func (r *Reader) listRecords(ctx context.Context, view store.View, prefix, after string, limit int) ([]store.Record, error) {
	var records []store.Record
	err := r.call(ctx, limit, "listing counters", func(ctx context.Context) (err error) {
		r.stats.lists.Add(1)
		records, err = view.List(ctx, prefix, after, limit)
		if err == nil && prefix == "" {
			records, err = pastGroups(ctx, view, records, limit)
		}
		return err
	})
	return records, err
}

// cut returns the records of one page: at least one, if there are any.
func (r *Reader) cut(records []store.Record, limit int) []store.Record {
	shards := 0
	for i, rec := range records {
		if shards += rec.Shards; i == limit || i > 0 && shards > maxShardsPerPage {
			return records[:i]
		}
	}
	return records
}

func (r *Reader) page(rd *reading, next string) Page {
	p, now := Page{Totals: make([]Total, 0, len(rd.partials)), AsOf: rd.view.ReadTime(), Next: next}, r.clock.Now()
	for _, t := range rd.partials {
		total, err := t.total()
		if err != nil {
			r.stats.overflows.Add(1)
			p.Overflowed = append(p.Overflowed, t.counter)
			continue
		}
		if !total.Exists {
			continue // deleted
		}
		total.AsOf = p.AsOf
		_, total.Checked = r.servesSince(total.Counter)
		p.Totals = append(p.Totals, total)
		r.account(&total, now)
	}
	return p
}
