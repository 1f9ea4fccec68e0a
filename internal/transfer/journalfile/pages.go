package journalfile

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/countmill/countmill/client"
	"github.com/countmill/countmill/internal/httpserver"
	"github.com/countmill/countmill/internal/journal"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/wire"
)

// pageLimit is the most entries, or records, of one answer.
const pageLimit = 1000

// pages reads the entries of a period in the order of their keys, with one request a page.
type pages struct {
	x     *Export
	query url.Values
	wait  func(why string)
	ended bool
}

func newPages(x *Export, wait func(string)) *pages {
	p := &pages{x: x, wait: wait}
	if !p.single() {
		p.query = url.Values{"from": {httpserver.FormatTime(x.Period.From)}, "to": {httpserver.FormatTime(x.Period.To)}}
		return p
	}
	var after store.JournalPlace
	if before := x.Period.From.Add(-time.Microsecond); wire.InRange(before) {
		after = store.JournalPlace{Key: store.NewJournalKey(before, math.MaxUint64), Position: math.MaxUint32}
	}
	p.query = url.Values{"counter": {x.Period.Counters}, "limit": {strconv.Itoa(pageLimit)}, "after": {after.String()}}
	return p
}

// single reports whether the period is of one counter. Its own pages cost less than a scan of all records where
// its rule is paged.
func (p *pages) single() bool {
	c := p.x.Period.Counters
	return c != "" && !strings.HasSuffix(c, "*")
}

// next returns the next page, which may be empty before the end.
func (p *pages) next(ctx context.Context) ([]client.JournalEntry, error) {
	read := p.records
	if p.single() {
		read = p.entries
	}
	entries, next, settled, err := read(ctx)
	if err != nil {
		return nil, err
	}
	if settled.Before(p.x.Period.To.Add(-time.Microsecond)) {
		return nil, fmt.Errorf("--to: %s is after %s, up to which the journal is complete: wait, or end the period earlier",
			httpserver.FormatTime(p.x.Period.To), httpserver.FormatTime(settled))
	}
	if p.ended = p.ended || next == ""; !p.ended {
		p.query.Set("after", next)
	}
	return entries, nil
}

// entries reads a page of one counter.
func (p *pages) entries(ctx context.Context) (_ []client.JournalEntry, next string, settled time.Time, err error) {
	var page client.JournalPage
	if err := p.ask(ctx, "/v1/journal", &page); err != nil {
		return nil, "", settled, err
	}
	if page.Entries == nil {
		return nil, "", settled, errForeign
	}
	for i := range page.Entries {
		if !page.Entries[i].Time.Before(p.x.Period.To) {
			p.ended = true
			page.Entries = page.Entries[:i]
			break
		}
	}
	if page.Next != "" { // a page without entries also says how far it has read
		place, err := store.ParseJournalPlace("next", page.Next)
		if err != nil {
			return nil, "", settled, err
		}
		p.ended = p.ended || !place.Key.Time().Before(p.x.Period.To)
	}
	return page.Entries, page.Next, page.SettledUntil, nil
}

// records reads a page of records, and takes the entries of the period's counters from them.
func (p *pages) records(ctx context.Context) (entries []client.JournalEntry, next string, settled time.Time, err error) {
	var page client.JournalRecords
	if err := p.ask(ctx, "/v1/journal/records", &page); err != nil {
		return nil, "", settled, err
	}
	if page.Records == nil {
		return nil, "", settled, errForeign
	}
	prefix := strings.TrimSuffix(p.x.Period.Counters, "*")
	for _, r := range page.Records {
		place, err := store.ParseJournalPlace("key", r.Key)
		if err != nil {
			return nil, "", settled, err
		}
		content, err := journal.Decode(r.Data)
		if err != nil {
			return nil, "", settled, fmt.Errorf("%s: %w", r.Key, err)
		}
		content.Lines(place.Key, func(l journal.Line) {
			if strings.HasPrefix(l.Entry.Counter, prefix) {
				entries = append(entries, client.JournalEntry{Key: l.Place.String(), Time: l.Place.Key.Time(),
					Counter: l.Entry.Counter, Delta: l.Entry.Delta, Part: l.Part.ID.String(), Sender: l.Part.Sender})
			}
		})
	}
	return entries, page.Next, page.SettledUntil, nil
}

var errForeign = errors.New("the server answered with something else than a journal; is that a countmill?")

// ask reads a page, again while that may help.
func (p *pages) ask(ctx context.Context, path string, page any) error {
	ctx, cancel := context.WithTimeout(ctx, p.x.Timeout)
	defer cancel()
	answer, err := p.x.Client.Do(ctx, client.Request{Path: path, Query: p.query, OnRetry: func(err error) { p.wait(err.Error()) }})
	if err != nil {
		return err
	}
	if json.Unmarshal(answer, page) != nil {
		return errForeign
	}
	return nil
}
