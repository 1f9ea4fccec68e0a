package admin

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/internal/journal"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/wire"
)

// MaxJournalPage is the most entries of a page of the journal.
const MaxJournalPage = 1000

// maxScanned is the most records that one page reads. A page of a counter without rows then ends early,
// and says where the next one begins.
const maxScanned = 2000

// A JournalStore is the part of a store that a Journal needs.
type JournalStore interface {
	store.Journal

	// Check is the method of store.Meta.
	Check(ctx context.Context) (store.Checked, error)
}

// A Journal reads the increments of counters under a rule for the journal, one by one. All methods are
// safe for concurrent use.
type Journal struct {
	store   JournalStore
	timeout time.Duration
}

// NewJournal returns the journal of a store. timeout bounds each call to the store.
func NewJournal(st JournalStore, timeout time.Duration) *Journal { return &Journal{st, timeout} }

// A JournalEntry is the delta of one counter in one part: an increment, or several of one sender that
// were sent together.
type JournalEntry struct {
	Key     string // its place in the journal; keys have the order of entries
	Time    time.Time
	Counter string
	Delta   int64
	Part    wire.PartID
	Sender  string // the name of a token; empty if it is not known
}

// A JournalQuery asks for entries of one counter.
type JournalQuery struct {
	Counter string
	// ID selects the increments with this id; empty for all.
	ID string
	// After or Before is the key of an entry: the page has the Limit entries just after it, or just
	// before it. Without either a page begins at the oldest entry.
	After, Before string
	Limit         int // 1 to MaxJournalPage
}

// A JournalPage is some entries, in ascending order of keys.
type JournalPage struct {
	Entries []JournalEntry
	// Next is the After of the next page: the key of the last entry, or of a place after it if the page is
	// short because much was read. It is empty at the end.
	Next string
	// Previous is the Before of the page before this one; empty at the beginning, and for a query without
	// Before.
	Previous string
	// SettledUntil is the time up to which the journal is complete. Entries of later times may still be
	// missing, and are not shown.
	SettledUntil time.Time
}

// Page returns entries of a counter. Pages of entries that existed at the first call never repeat and never skip an
// entry, and a caller that follows the end, asking again after the last key, sees every entry. A page of a
// counter whose rule has rows reads only the entries that it shows. Another page reads some 2,000 records of all counters.
//
// An error matches countmill.ErrInvalid or countmill.ErrUnavailable.
func (j *Journal) Page(ctx context.Context, q JournalQuery) (JournalPage, error) {
	p := pager{j: j, q: &q}
	if err := p.check(); err != nil {
		return JournalPage{}, err
	}
	checked, err := j.check(ctx)
	if err != nil {
		return JournalPage{}, err
	}
	// Entries of a later time may be without rows, by other rules. Where it is zero, no commit comes by other
	// rules than the latest.
	p.page.SettledUntil = checked.At
	rules := checked.Settings.Rules
	// Entries before this place may have no row.
	rows := store.JournalPlace{Key: maxKey, Position: math.MaxUint32}
	if from, ok := rules.PagedFrom(q.Counter); ok {
		if rows = (store.JournalPlace{}); !from.IsZero() {
			rows = store.JournalAt(from)
		}
	}
	read := p.forward
	if p.q.Before != "" {
		read = p.backward
	}
	if err := read(ctx, rows); err != nil {
		return JournalPage{}, fmt.Errorf("%w: reading the journal: %w", countmill.ErrUnavailable, err)
	}
	return p.page, nil
}

var maxKey = store.NewJournalKey(wire.MaxTime, math.MaxUint64)

func (j *Journal) check(ctx context.Context) (store.Checked, error) {
	ctx, cancel := context.WithTimeout(ctx, j.timeout)
	defer cancel()
	checked, err := j.store.Check(ctx)
	if err != nil {
		return store.Checked{}, fmt.Errorf("%w: reading the rules: %w", countmill.ErrUnavailable, err)
	}
	return checked, nil
}

// A pager gathers one page.
type pager struct {
	j             *Journal
	q             *JournalQuery
	after, before store.JournalPlace
	part          wire.PartID // of the increment with ID
	page          JournalPage
	scanned       int
}

func (p *pager) check() (err error) {
	if err := countmill.CheckCounter(p.q.Counter); err != nil {
		return err
	}
	if p.q.ID != "" {
		if err := countmill.CheckID("id", p.q.ID); err != nil {
			return err
		}
		p.part = wire.IncrementID(p.q.Counter, p.q.ID)
	}
	switch {
	case p.q.Limit < 1 || p.q.Limit > MaxJournalPage:
		return &countmill.FieldError{Field: "limit", Problem: "is out of range", Limit: "1 to " + strconv.Itoa(MaxJournalPage)}
	case p.q.After != "" && p.q.Before != "":
		return &countmill.FieldError{Field: "before", Problem: "is given beside after", Limit: "one of both"}
	case p.q.After != "":
		p.after, err = store.ParseJournalPlace("after", p.q.After)
	case p.q.Before != "":
		p.before, err = store.ParseJournalPlace("before", p.q.Before)
	}
	return err
}

// forward reads one entry more than the page has, to see whether another one follows. rows is the place from
// which on every entry has a row.
func (p *pager) forward(ctx context.Context, rows store.JournalPlace) error {
	from := store.JournalPlace{}
	if p.q.After != "" {
		from = p.after.Next()
	}
	most, read := p.q.Limit+1, reached{}
	if from.Compare(rows) < 0 {
		var err error
		// The record of the key may have more entries.
		if read, err = p.scan(ctx, store.JournalQuery{From: store.JournalPlace{Key: from.Key}, To: rows}, most); err != nil {
			return err
		}
		from = rows
	}
	if !read.early && len(p.page.Entries) < most && rows.Key != maxKey {
		var err error
		if read, err = p.list(ctx, store.JournalQuery{From: from}, most); err != nil {
			return err
		}
	}
	switch {
	case len(p.page.Entries) == most:
		p.page.Entries = p.page.Entries[:p.q.Limit]
		p.page.Next = p.page.Entries[p.q.Limit-1].Key
	case read.early:
		p.page.Next = read.at.String()
	}
	return nil
}

// backward gathers entries in descending order, and then turns them around.
func (p *pager) backward(ctx context.Context, rows store.JournalPlace) error {
	most, to, read := p.q.Limit+1, p.before, reached{}
	if (to == store.JournalPlace{}) {
		to.Position = 1 // a zero To would be no end, and no record has the zero key
	}
	if rows.Compare(to) < 0 {
		var err error
		if read, err = p.list(ctx, store.JournalQuery{From: rows, To: to, Last: true}, most); err != nil {
			return err
		}
		to = rows
	}
	if !read.early && len(p.page.Entries) < most && (to != store.JournalPlace{}) {
		var err error
		if read, err = p.scan(ctx, store.JournalQuery{To: to, Last: true}, most); err != nil {
			return err
		}
	}
	entries := p.page.Entries
	switch {
	case len(entries) == most:
		entries = entries[:p.q.Limit]
		p.page.Previous = entries[p.q.Limit-1].Key
	case read.early:
		p.page.Previous = read.at.String()
	}
	slices.Reverse(entries)
	if p.page.Entries = entries; len(entries) > 0 {
		p.page.Next = entries[len(entries)-1].Key
	}
	return nil
}

// A reached says how far a range was read.
type reached struct {
	at    store.JournalPlace
	early bool // maxScanned ended it, and the page has room left
}

// A call to the store asks for firstScan records, each further one for twice as many, up to scanPage.
const firstScan, scanPage = 25, 200

// scan reads records until the page has most entries, the range ends, or maxScanned were read.
func (p *pager) scan(ctx context.Context, q store.JournalQuery, most int) (read reached, err error) {
	q.Limit, q.Settled = firstScan, true
	return p.readRange(ctx, &q, most, func(ctx context.Context) (page store.JournalPage, n int, err error) {
		page, err = p.ask(ctx, func(ctx context.Context, v store.JournalView) (store.JournalPage, error) {
			return v.JournalRecords(ctx, q)
		})
		if err != nil {
			return page, 0, err
		}
		if q.Last {
			slices.Reverse(page.Records)
		}
		for i := range page.Records {
			if read.at, err = p.takeRecord(&page.Records[i], q.Last); err != nil {
				return page, 0, err
			}
		}
		q.Limit = min(2*q.Limit, scanPage)
		return page, len(page.Records), nil
	}, &read)
}

// list is scan for the rows of the counter.
func (p *pager) list(ctx context.Context, q store.JournalQuery, most int) (read reached, err error) {
	return p.readRange(ctx, &q, most, func(ctx context.Context) (page store.JournalPage, n int, err error) {
		q.Limit, q.Settled = scanPage, true
		if p.q.ID == "" {
			q.Limit = min(scanPage, most-len(p.page.Entries))
		}
		page, err = p.ask(ctx, func(ctx context.Context, v store.JournalView) (store.JournalPage, error) {
			return v.JournalRows(ctx, p.q.Counter, q)
		})
		if err != nil {
			return page, 0, err
		}
		if q.Last {
			slices.Reverse(page.Rows)
		}
		for i := range page.Rows {
			line, err := journal.DecodeRow(&page.Rows[i])
			if err != nil {
				return page, 0, fmt.Errorf("row %s: %w", page.Rows[i].Place, err)
			}
			read.at = line.Place
			p.take(line)
		}
		return page, len(page.Rows), nil
	}, &read)
}

// readRange repeats a read of q until the page has most entries or the range ends. It ends early after
// maxScanned records or rows. read.at is the place up to which everything was read.
func (p *pager) readRange(ctx context.Context, q *store.JournalQuery, most int, step func(context.Context) (store.JournalPage, int, error), read *reached) (reached, error) {
	for {
		p.settle(q)
		page, n, err := step(ctx)
		if err != nil {
			return *read, err
		}
		full := len(p.page.Entries) >= most
		switch p.scanned += n; {
		case full || n == 0 || !page.More:
			p.page.Entries = p.page.Entries[:min(len(p.page.Entries), most)]
			return *read, nil
		case p.scanned >= maxScanned+p.q.Limit:
			read.early = true
			return *read, nil
		case q.Last:
			q.To = read.at
		default:
			q.From = read.at.Next()
		}
	}
}

// settle ends a range at the time up to which the page is settled. A later call may know of later entries,
// and leaves them to the next page: others before them may have come after the call for their range.
func (p *pager) settle(q *store.JournalQuery) {
	end := store.JournalAt(p.page.SettledUntil.Add(time.Microsecond))
	if !p.page.SettledUntil.IsZero() && (q.To == store.JournalPlace{} || end.Compare(q.To) < 0) {
		q.To = end
	}
}

// takeRecord takes the counter's entries of a record, in the order of the scan, and returns the place up to
// which everything was read.
func (p *pager) takeRecord(r *store.JournalRecord, last bool) (store.JournalPlace, error) {
	content, err := journal.Decode(r.Data)
	if err != nil {
		return store.JournalPlace{}, fmt.Errorf("record %x: %w", r.Key, err)
	}
	first := len(p.page.Entries)
	content.Lines(r.Key, p.take)
	if last {
		slices.Reverse(p.page.Entries[first:])
		return r.Place(), nil
	}
	return store.JournalPlace{Key: r.Key, Position: math.MaxUint32}, nil
}

// take adds an entry to the page if the query has it.
func (p *pager) take(l journal.Line) {
	switch {
	case l.Entry.Counter != p.q.Counter, p.q.ID != "" && l.Part.ID != p.part:
		return
	case p.q.After != "" && l.Place.Compare(p.after) <= 0, p.q.Before != "" && l.Place.Compare(p.before) >= 0:
		return // of the record that has the key itself
	}
	p.page.Entries = append(p.page.Entries, JournalEntry{
		Key: l.Place.String(), Time: l.Place.Key.Time(), Counter: l.Entry.Counter, Delta: l.Entry.Delta, Part: l.Part.ID, Sender: l.Part.Sender,
	})
}

// ask makes one call to the store. The page is settled up to the earliest of the times that its calls
// answer.
func (p *pager) ask(ctx context.Context, call func(context.Context, store.JournalView) (store.JournalPage, error)) (store.JournalPage, error) {
	ctx, cancel := context.WithTimeout(ctx, p.j.timeout)
	defer cancel()
	v := p.j.store.JournalView()
	defer v.Close()
	got, err := call(ctx, v)
	if err == nil && (p.page.SettledUntil.IsZero() || got.SettledUntil.Before(p.page.SettledUntil)) {
		p.page.SettledUntil = got.SettledUntil
	}
	return got, err
}

// Records returns at most limit records from a place on and before another one, as the store has them, and
// whether more follow. limit is from 1 to MaxJournalPage. Errors match countmill.ErrInvalid or
// countmill.ErrUnavailable.
func (j *Journal) Records(ctx context.Context, q store.JournalQuery) (store.JournalPage, error) {
	if q.Limit < 1 || q.Limit > MaxJournalPage {
		return store.JournalPage{}, &countmill.FieldError{Field: "limit", Problem: "is out of range", Limit: "1 to " + strconv.Itoa(MaxJournalPage)}
	}
	ctx, cancel := context.WithTimeout(ctx, j.timeout)
	defer cancel()
	v := j.store.JournalView()
	defer v.Close()
	q.Settled = true
	page, err := v.JournalRecords(ctx, q)
	if err != nil {
		return page, fmt.Errorf("%w: reading the journal: %w", countmill.ErrUnavailable, err)
	}
	return page, nil
}
