package sim

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/countmill/countmill/admin"
	"github.com/countmill/countmill/internal/journal"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/wire"
)

// Page clients read the journals of counters in pages: forward and backward, and behind the end.
type pageClients struct {
	*callers

	walks   []*walk
	tries   int    // pages asked for since nothing breaks any more
	checked bool   // all pages
	erased  string // the counter whose entries were erased last of all; empty before
}

// A walk is the pages of one counter that a client reads one after the other. A forward one follows the
// end: it asks again after the last key.
type walk struct {
	n       int
	counter string
	back    bool
	start   string    // Before of the first page of a backward walk
	key     string    // After or Before of the next page
	open    bool      // there is a next page: nothing beyond key has been read
	settled time.Time // of the last page; of a backward walk the first one's
	entries []admin.JournalEntry
	busy    bool // a page is asked for
	done    bool // a backward walk has come to the beginning
}

// mostWalks bounds the walks of a schedule: the fewer there are, the longer they are.
const mostWalks = 5

// newestKey is after the keys of all entries.
var newestKey = store.JournalPlace{Key: store.NewJournalKey(wire.MaxTime, math.MaxUint64), Position: math.MaxUint32}.String()

// read asks for the next page of a walk, or for the first one of another walk.
func (pc *pageClients) read() {
	lives := pc.procs.lives(reading)
	if len(lives) == 0 {
		return
	}
	w := pc.newWalk()
	if waiting := pc.waiting(); w == nil || len(waiting) > 0 && pc.rng.IntN(4) > 0 {
		if len(waiting) == 0 {
			return
		}
		w = pick(pc.rng, waiting)
	} else {
		pc.walks = append(pc.walks, w)
	}
	pc.askPage(w, pick(pc.rng, lives), pc.pages.limit)
}

// waiting returns the walks that can go on.
func (pc *pageClients) waiting() (found []*walk) {
	for _, w := range pc.walks {
		if !w.busy && !w.done {
			found = append(found, w)
		}
	}
	return found
}

// newWalk draws a walk. It is nil if there are enough.
func (pc *pageClients) newWalk() *walk {
	if len(pc.walks) == mostWalks {
		return nil
	}
	w := &walk{n: len(pc.walks), counter: pick(pc.rng, counters[:2+pc.shape.counters]), back: pc.rng.IntN(3) == 0}
	if w.back {
		w.start = newestKey
		for _, other := range pc.walks { // or from where another one is
			if other.counter == w.counter && len(other.entries) > 0 && pc.rng.IntN(2) == 0 {
				w.start = other.entries[len(other.entries)-1].Key
			}
		}
		w.key = w.start
	}
	return w
}

func (pc *pageClients) askPage(w *walk, p *proc, limit int) {
	q := admin.JournalQuery{Counter: w.counter, After: w.key, Limit: limit}
	if w.back {
		q.After, q.Before = "", w.key
	}
	var page admin.JournalPage
	o := pc.newOp("page", func(o *op) { pc.take(w, o, &q, &page) })
	w.busy = true
	pc.say(p, "op %d: %d entries of %s after %q, before %q", o.n, q.Limit, q.Counter, q.After, q.Before)
	pc.ask(o, p, func(ctx context.Context) (err error) {
		page, err = p.jnl.Page(ctx, q)
		return err
	})
}

// take takes a page in. A client that gets none asks for the same one again.
func (pc *pageClients) take(w *walk, o *op, q *admin.JournalQuery, page *admin.JournalPage) {
	w.busy = false
	if o.p.dead || o.err != nil {
		return
	}
	pc.Pages++
	pc.say(o.p, "walk %d gets %s, next %q, previous %q, settled until %s", w.n, pc.words("entries", func() string { return entriesText(page.Entries) }), page.Next, page.Previous, page.SettledUntil.Format(clockFormat))
	pc.checkPage(q, page)
	next := page.Next
	if w.back {
		slices.Reverse(page.Entries)
		next = page.Previous
	}
	if !w.back || w.settled.IsZero() {
		w.settled = page.SettledUntil
	}
	w.entries = append(w.entries, page.Entries...)
	switch w.open = next != ""; {
	case w.open:
		w.key = next
	case w.back:
		w.done = true
	case len(page.Entries) > 0:
		w.key = page.Entries[len(page.Entries)-1].Key
	}
}

// checkPage: a page has entries of its range in the order of their keys, and none of which others before it
// may still be missing.
func (pc *pageClients) checkPage(q *admin.JournalQuery, page *admin.JournalPage) {
	before := q.After
	for i := range page.Entries {
		e := &page.Entries[i]
		switch {
		case e.Counter != q.Counter || i >= q.Limit || q.Before != "" && e.Key >= q.Before || e.Key <= before:
			pc.violate("a page of %d entries of %s after %q and before %q has entries%s", q.Limit, q.Counter, q.After, q.Before, entriesText(page.Entries))
			return
		case e.Time.After(page.SettledUntil):
			pc.violate("a page that is settled until %s has an entry of %s", page.SettledUntil.Format(clockFormat), e.Time.Format(clockFormat))
		}
		before = e.Key
	}
}

func entriesText(entries []admin.JournalEntry) string {
	text := ""
	for i := range entries {
		text += fmt.Sprintf(" %s:%s", entries[i].Key, sumText(entries[i].Counter, entries[i].Delta))
	}
	return text
}

// mostLastPages bounds the pages that are asked for when nothing breaks any more.
const mostLastPages = 500

// readLast has each walk read on to its end, and one of each counter from the oldest entry to the newest. It
// reports whether all have. Everything is settled.
func (pc *pageClients) readLast() bool {
	if len(pc.asked) > 0 {
		return false
	}
	newest := pc.kept.newest()
	for _, counter := range counters[:2+pc.shape.counters] {
		if !slices.ContainsFunc(pc.walks, func(w *walk) bool { return !w.back && w.counter == counter }) {
			pc.walks = append(pc.walks, &walk{n: len(pc.walks), counter: counter})
		}
	}
	if pc.checked {
		return pc.eraseLast()
	}
	i := slices.IndexFunc(pc.walks, func(w *walk) bool { return !w.done && (w.open || w.settled.Before(newest)) })
	if i < 0 {
		return pc.eraseLast()
	}
	lives := pc.procs.lives(reading)
	if pc.tries++; pc.tries > mostLastPages {
		pc.violate("the journal of %s cannot be read to its end, %s", pc.walks[i].counter, newest.Format(clockFormat))
		return true
	}
	if len(lives) > 0 {
		pc.askPage(pc.walks[i], pick(pc.rng, lives), 10*pc.pages.limit)
	}
	return false
}

// eraseLast checks all pages. Then it has the entries of a counter erased, and reports whether they are gone.
func (pc *pageClients) eraseLast() bool {
	if pc.erased != "" {
		pc.kept.lines(func(l journal.Line) {
			if l.Entry.Counter == pc.erased {
				pc.violate("the entry %s of %s is left after all were erased", l.Place, pc.erased)
			}
		})
		return true
	}
	if !pc.checked {
		for _, w := range pc.walks {
			pc.kept.checkWalk(w)
		}
		pc.checked = true
	}
	lives := pc.procs.lives(reading)
	if len(lives) == 0 {
		return false
	}
	p, counter := pick(pc.rng, lives), pick(pc.rng, counters[:2])
	pc.ask(pc.newOp("erase", func(o *op) {
		if !o.p.dead && o.err == nil {
			pc.erased = counter
		}
	}), p, func(ctx context.Context) error {
		for after, more := "", true; more; more = after != "" {
			done, err := p.jnl.Erase(ctx, counter, after)
			if err != nil {
				return err
			}
			after = done.Next
		}
		return nil
	})
	return false
}
