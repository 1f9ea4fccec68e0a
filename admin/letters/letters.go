package letters

import (
	"context"
	"fmt"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/internal/sysenv"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/wire"
)

const (
	// MaxPage is the most letters of a page, MaxKeys the most keys of one replay or
	// discard.
	MaxPage = 1000
	MaxKeys = 100

	// lot is how many letters are in memory at once: one may have 10 MB.
	lot = 5
	// maxRead is how many bytes of letters are read for a page: it may end early.
	maxRead = 32 << 20

	// maxKey is far above what keys of letters have.
	maxKey = 200
)

// Config sets up Letters. The zero value works.
type Config struct {
	// Env is for simulations. Leave it nil.
	Env *sysenv.Env
}

// Letters looks after the dead letters of a store.
type Letters struct {
	store Store
	env   *sysenv.Env
}

// New returns Letters of a store.
func New(st Store, cfg Config) *Letters { return &Letters{st, cfg.Env} }

// A Page holds letters in the order of their keys.
type Page struct {
	Letters []Letter
	Bytes   []int  // of each; payloads are left out
	Next    string // what List takes as after for the next page; empty at the end
}

// List returns letters whose keys come after after: at most limit of them (1 to MaxPage),
// and fewer where they are large.
func (l *Letters) List(ctx context.Context, after string, limit int) (Page, error) {
	var p Page
	for bytes := 0; ; {
		n := min(lot, limit+1-len(p.Letters)) // one more shows whether there is more
		found, err := l.store.Page(ctx, after, n)
		if err != nil {
			return Page{}, away("listing dead letters", err)
		}
		for _, d := range found {
			if len(p.Letters) == limit || bytes > maxRead {
				p.Next = p.Letters[len(p.Letters)-1].Key
				return p, nil
			}
			bytes += len(d.Payload)
			p.Bytes = append(p.Bytes, len(d.Payload))
			after, d.Payload = d.Key, nil
			p.Letters = append(p.Letters, d)
		}
		if len(found) < n {
			return p, nil
		}
	}
}

// Show returns one letter and what it holds; found is false where there is none.
func (l *Letters) Show(ctx context.Context, key string) (d Letter, c Contents, found bool, err error) {
	letters, err := l.store.Find(ctx, []string{key})
	if err != nil {
		return d, c, false, away("looking a dead letter up", err)
	}
	if len(letters) == 0 {
		return d, c, false, nil
	}
	s, err := l.settings(ctx)
	if err != nil {
		return d, c, false, err
	}
	return letters[0], read(&letters[0], s, l.env.Now()), true, nil
}

// What became of a letter.
const (
	Asked     = "asked"     // aggregators count it
	Refused   = "refused"   // it cannot be replayed, or not in this way; Why says why
	Gone      = "gone"      // there is no such letter: counted, discarded, or never there
	Discarded = "discarded" // it was there and is not any more: it is not counted
	Removed   = "removed"   // the same, but it may have been counted, or be; Why says why
)

// An Outcome is what became of one letter.
type Outcome struct {
	Key    string
	Result string
	Why    string
	// New is true where it is counted as new: with the time of the request, under other ids
	// where its own are taken or lost. With Twice it may have been counted before, and its
	// marker be forgotten.
	New, Twice bool
}

// Replay asks for letters to be counted. A letter that cannot count under its own ids and
// times any more is refused, unless asNew has it counted as new. After an error it may be
// repeated.
func (l *Letters) Replay(ctx context.Context, keys []string, asNew bool) ([]Outcome, error) {
	s, err := l.settings(ctx)
	if err != nil {
		return nil, err
	}
	return l.each(ctx, keys, func(d *Letter) (Outcome, error) {
		o, ask := plan(d, s, asNew, l.env.Now())
		if o.Result != Asked {
			return o, nil
		}
		return o, l.store.Ask(ctx, ask)
	})
}

// settings are those of the store; the aggregators, which read them later, have the last word.
func (l *Letters) settings(ctx context.Context) (store.Settings, error) {
	s, err := l.store.Settings(ctx)
	if err != nil {
		return s, away("reading the settings", err)
	}
	return s, nil
}

// plan decides how a letter is to be counted.
func plan(d *Letter, s store.Settings, asNew bool, now time.Time) (Outcome, Letter) {
	o, ask := Outcome{Key: d.Key, Result: Asked}, *d
	c := read(d, s, now)
	switch {
	case c.Replay == Never:
		o.Result, o.Why = Refused, c.Why
	case c.Replay == AsNew && !asNew:
		o.Result, o.Why = Refused, c.Why+"; it can only be counted as new"
	case c.Replay == AsNew: // not other letters: beside a plain replay they would count twice
		fresh := renew(d, c.Batch, s, now)
		if fresh.Entries() == 0 {
			o.Result, o.Why = Refused, "it holds no increments"
			return o, ask
		}
		o.New, o.Twice = true, c.Twice
		ask.Payload, ask.Time = wire.Append(nil, fresh), now
	case c.JSON:
		ask.Payload = wire.Append(nil, c.Batch)
	}
	ask.At = now
	return o, ask
}

// Discard removes letters for good. A Discarded letter is never counted, even if a replay of it
// was under way. After an error it may be repeated.
func (l *Letters) Discard(ctx context.Context, keys []string) ([]Outcome, error) {
	return l.each(ctx, keys, func(d *Letter) (Outcome, error) {
		s, err := l.settings(ctx) // for each letter: the decision about it must not go by old ones
		if err != nil {
			return Outcome{}, err
		}
		uncounted, err := l.store.Discard(ctx, d.Key, store.Latest(d.Time, l.env.Now()), s)
		if !uncounted {
			return Outcome{Key: d.Key, Result: Removed, Why: "an aggregator had taken it to count it: it was counted, or may still be"}, err
		}
		return Outcome{Key: d.Key, Result: Discarded}, err
	})
}

// each calls do for the letters that are there, few at a time.
func (l *Letters) each(ctx context.Context, keys []string, do func(*Letter) (Outcome, error)) ([]Outcome, error) {
	outcomes := make([]Outcome, len(keys))
	for from := 0; from < len(keys); from += lot {
		some := keys[from:min(from+lot, len(keys))]
		found, err := l.store.Find(ctx, some)
		if err != nil {
			return nil, away("looking dead letters up", err)
		}
		letters := make(map[string]*Letter, len(found))
		for i := range found {
			letters[found[i].Key] = &found[i]
		}
		for i, key := range some {
			o := Outcome{Key: key, Result: Gone}
			if d := letters[key]; d != nil {
				if o, err = do(d); err != nil {
					return nil, away("dead letter "+key, err)
				}
			}
			outcomes[from+i] = o
		}
	}
	return outcomes, nil
}

// away is an error of the store. All that is done here may be repeated.
func away(what string, err error) error {
	return fmt.Errorf("%w: %s: %w", countmill.ErrUnavailable, what, err)
}
