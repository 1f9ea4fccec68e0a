package verify

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/internal/api"
	"github.com/countmill/countmill/store"
)

// What can be wrong.
const (
	Orphan     = "orphan"
	Beyond     = "beyond"
	Unreadable = "unreadable"
	WrongCache = "cached"
)

// A Problem is something that must not be.
type Problem struct {
	Kind    string
	Counter string
	Shard   int // -1 where it is about no shard
	Detail  string
	Fixed   bool
}

// A Cached is a total as the cache has it.
type Cached struct {
	Counter string
	Total   int64
	AsOf    time.Time
}

// Totals is what a process that serves totals knows beyond its store.
type Totals interface {
	// Counters returns up to limit counters that have a record and whose names begin with
	// prefix and come after after, in byte order.
	Counters(ctx context.Context, prefix, after string, limit int) ([]string, error)

	// Cached returns what the cache has of the counters, in any order.
	Cached(ctx context.Context, counters []string) ([]Cached, error)

	// Drop has the cache forget the counters.
	Drop(ctx context.Context, counters []string) error

	// Now is the store's time.
	Now(ctx context.Context) (time.Time, error)

	// At returns a counter's total as it was at a moment that is over; known is false where
	// the store does not show it.
	At(ctx context.Context, counter string, moment time.Time) (total int64, known bool, err error)
}

// Recorder raises the record of a counter, and makes it where there is none.
type Recorder interface {
	Grow(ctx context.Context, counter string, shards int) error
}

// A Verifier looks at a store page by page.
type Verifier struct {
	store    store.Survey
	recorder Recorder
	totals   Totals // nil in a process that serves none
}

// New returns a verifier. totals is nil where there is no cache to look at.
func New(survey store.Survey, recorder Recorder, totals Totals) *Verifier {
	return &Verifier{survey, recorder, totals}
}

// A Result is what a page showed.
type Result struct {
	At       time.Time // of the shards; zero on a page of cached totals
	Problems []Problem
	// Shards and Cached are how many were held against the rest, Unchecked how many cached
	// totals could not be, as the store does not show their moment.
	Shards, Cached, Unchecked int
	// Next is what the next page takes as from; empty at the end.
	Next string
}

// A page token begins with what the page is of: shards come first, then cached totals.
const (
	ofShards = "s"
	ofCached = "c"
)

var errToken = &countmill.FieldError{Field: "page_token", Problem: "is not one that this call gave", Limit: "the next_page_token of the page before, with the same prefix"}

// ShardsOf returns the shards of one counter.
func (v *Verifier) ShardsOf(ctx context.Context, counter string) (store.ShardPage, error) {
	page, err := v.store.ShardsOf(ctx, counter)
	return page, away("reading shards", err)
}

// Page looks at one page of what belongs to counters that begin with prefix: from the
// beginning where from is empty. With fix it mends what is safe to mend.
func (v *Verifier) Page(ctx context.Context, prefix, from string, limit int, fix bool) (Result, error) {
	switch {
	case from == "":
		return v.shards(ctx, prefix, "", limit, fix)
	case from[:1] == ofShards:
		return v.shards(ctx, prefix, from[1:], limit, fix)
	case from[:1] == ofCached && v.totals != nil:
		return v.cached(ctx, prefix, from[1:], limit, fix)
	}
	return Result{}, errToken
}

func (v *Verifier) shards(ctx context.Context, prefix, from string, limit int, fix bool) (Result, error) {
	page, err := v.store.ShardPage(ctx, prefix, from, limit)
	if err != nil {
		return Result{}, away("reading shards", err)
	}
	r := Result{At: page.At, Shards: len(page.Shards)}
	needs := make(map[string]int) // how many shards the record of a counter must name
	for i := range page.Shards {
		if p, wrong := judge(&page, &page.Shards[i]); wrong {
			r.Problems = append(r.Problems, p)
			if p.Kind != Unreadable && p.Shard < countmill.MaxShards {
				needs[p.Counter] = max(needs[p.Counter], p.Shard+1)
			}
		}
	}
	if page.Next != "" {
		r.Next = ofShards + page.Next
	} else if v.totals != nil {
		r.Next = ofCached
	}
	if !fix {
		return r, nil
	}
	for counter, shards := range needs {
		if err := v.recorder.Grow(ctx, counter, shards); err != nil {
			return Result{}, away("raising a record", err)
		}
	}
	for i := range r.Problems {
		p := &r.Problems[i]
		p.Fixed = p.Kind != Unreadable && p.Shard < needs[p.Counter]
	}
	return r, nil
}

// judge holds a shard against its counter's record.
func judge(p *store.ShardPage, s *store.Shard) (Problem, bool) {
	problem := Problem{Counter: s.Counter, Shard: s.Number}
	record, recorded := p.Records[s.Counter]
	switch {
	case s.Bad != "":
		problem.Kind, problem.Detail = Unreadable, s.Bad
	case !recorded:
		problem.Kind, problem.Detail = Orphan, fmt.Sprintf("holds %d, and its counter has no record", s.Count)
	case s.Number >= record:
		problem.Kind, problem.Detail = Beyond, fmt.Sprintf("holds %d, and the record names %d shards", s.Count, record)
	default:
		return problem, false
	}
	return problem, true
}

// grace is how far a cached total's moment may be ahead of the store's time: two answers
// of it take as long.
const grace = time.Second

// maxCached is the most counters of a page of cached totals: each that is cached costs a
// look-up of the past.
const maxCached = 200

// cached holds cached totals against the past. It asks for the time after the cache.
func (v *Verifier) cached(ctx context.Context, prefix, after string, limit int, fix bool) (Result, error) {
	var r Result
	limit = min(limit, maxCached)
	counters, err := v.totals.Counters(ctx, prefix, after, limit)
	if err != nil {
		return r, away("listing counters", err)
	}
	if len(counters) == 0 {
		return r, nil
	}
	if len(counters) == limit {
		r.Next = ofCached + counters[limit-1]
	}
	found, err := v.totals.Cached(ctx, counters)
	if err != nil {
		return r, away("reading the cache", err)
	}
	now, err := v.totals.Now(ctx)
	if err != nil {
		return r, away("asking the store for its time", err)
	}
	var drop []string
	for _, c := range found {
		problem, known, err := v.judgeCached(ctx, c, now)
		if err != nil {
			return Result{}, away("reading the past", err)
		}
		r.Cached++
		if !known {
			r.Unchecked++
		}
		if problem != "" {
			r.Problems = append(r.Problems, Problem{Kind: WrongCache, Counter: c.Counter, Shard: -1, Detail: problem, Fixed: fix})
			drop = append(drop, c.Counter)
		}
	}
	if fix && len(drop) > 0 {
		if err := v.totals.Drop(ctx, drop); err != nil {
			return Result{}, away("dropping a cached total", err)
		}
	}
	return r, nil
}

func (v *Verifier) judgeCached(ctx context.Context, c Cached, now time.Time) (problem string, known bool, err error) {
	if c.AsOf.After(now) {
		if c.AsOf.After(now.Add(grace)) {
			return fmt.Sprintf("%d as of %s, which is to come: it is %s", c.Total, api.FormatTime(c.AsOf), api.FormatTime(now)), true, nil
		}
		return "", false, nil
	}
	total, known, err := v.totals.At(ctx, c.Counter, c.AsOf)
	switch {
	case errors.Is(err, countmill.ErrOverflow):
		return fmt.Sprintf("%d as of %s, when the total did not fit 64 bits", c.Total, api.FormatTime(c.AsOf)), true, nil
	case err != nil || !known || total == c.Total:
		return "", known, err
	}
	return fmt.Sprintf("%d as of %s, when the total was %d", c.Total, api.FormatTime(c.AsOf), total), true, nil
}

// away is an error of what is outside; one of the request stays what it is.
func away(what string, err error) error {
	if err == nil || errors.Is(err, countmill.ErrInvalid) {
		return err
	}
	return fmt.Errorf("%w: %s: %w", countmill.ErrUnavailable, what, err)
}
