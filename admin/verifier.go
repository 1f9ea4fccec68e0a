package admin

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/store"
)

// The kinds of a Problem.
const (
	Orphan     = "orphan"     // a shard of a counter that has no record: no total has it
	Beyond     = "beyond"     // a shard whose number the record does not cover: no total has it
	Unreadable = "unreadable" // a shard under a key that is not its own, or with no count
	WrongCache = "cached"     // a cached total that was wrong at the moment that it names, or is of the future
)

// A Problem is a wrong shard or a wrong cached total.
type Problem struct {
	Kind    string
	Counter string
	Shard   int // -1 if it is about no shard
	Detail  string
	Fixed   bool
}

// A Cached is a total as the cache has it.
type Cached struct {
	Counter string
	Total   int64
	AsOf    time.Time
}

// Totals gives a Verifier the data that a process which serves totals has beyond its store.
type Totals interface {
	// Counters returns up to limit counters that have a record and whose names begin with
	// prefix and come after after, in byte order.
	Counters(ctx context.Context, prefix, after string, limit int) ([]string, error)

	// Cached returns the cached totals of the counters, in any order.
	Cached(ctx context.Context, counters []string) ([]Cached, error)

	// Drop has the cache forget the counters.
	Drop(ctx context.Context, counters []string) error

	// Now is the store's time.
	Now(ctx context.Context) (time.Time, error)

	// At returns a counter's total as it was at a past moment; known is false if the store does
	// not show it.
	At(ctx context.Context, counter string, moment time.Time) (total int64, known bool, err error)
}

// Records are the records of counters, as a Verifier changes them.
type Records interface {
	// Grow is the method of store.Records.
	Grow(ctx context.Context, growths []store.Growth) error
}

// A Verifier compares shards with the records of their counters, and cached totals with the
// totals of the past, page by page.
//
// Shards and records of a page are read at one moment. A fold grows the record before it writes
// the shard, or together with it. So a fold that is under way is never reported.
//
// A cached total may be older than the counter: it names its moment. The Verifier checks it at
// that moment, if the store shows the past.
//
// A repair grows the record until it covers the shards, which only ever adds folded increments
// to totals, and drops wrong cached totals. The rest is for a person.
type Verifier struct {
	store   store.Survey
	records Records
	totals  Totals     // nil in a process that serves none
	groups  GroupReads // nil: groups are not compared
}

// NewVerifier returns a verifier. totals is nil if there is no cache to look at.
func NewVerifier(survey store.Survey, records Records, totals Totals) *Verifier {
	return &Verifier{store: survey, records: records, totals: totals}
}

// A VerifyResult is the result of a page.
type VerifyResult struct {
	At       time.Time // of the shards, or of the groups; zero on a page of cached totals
	Problems []Problem
	// Shards and Cached are how many were compared, Unchecked how many cached totals could not
	// be, because the store does not show their moment.
	Shards, Cached, Unchecked int
	// Groups is how many groups were compared with the sums of their counters.
	Groups int
	// Next is the from of the next page; empty at the end.
	Next string
}

// A page token begins with the kind of its page: shards come first, then cached totals, then groups.
const (
	ofShards = "s"
	ofCached = "c"
	ofGroups = "g"
)

var errToken = &countmill.FieldError{Field: "page_token", Problem: "is not a page token of this endpoint", Limit: "the next_page_token of the page before, with the same prefix"}

// ShardsOf returns the shards of one counter.
func (v *Verifier) ShardsOf(ctx context.Context, counter string) (store.ShardPage, error) {
	page, err := v.store.ShardsOf(ctx, counter)
	return page, unavailable("reading shards", err)
}

// Page checks one page of the shards or cached totals of counters that begin with prefix. It
// begins at the start if from is empty. With fix it makes the repairs that are safe.
func (v *Verifier) Page(ctx context.Context, prefix, from string, limit int, fix bool) (VerifyResult, error) {
	switch {
	case from == "":
		return v.shards(ctx, prefix, "", limit, fix)
	case from[:1] == ofShards:
		return v.shards(ctx, prefix, from[1:], limit, fix)
	case from[:1] == ofCached && v.totals != nil:
		return v.cached(ctx, prefix, from[1:], limit, fix)
	case from[:1] == ofGroups && v.groups != nil:
		return v.groupPage(ctx, prefix, from[1:])
	}
	return VerifyResult{}, errToken
}

// afterShards and afterCached are the kinds of the pages that follow.
func (v *Verifier) afterShards() string {
	if v.totals != nil {
		return ofCached
	}
	return v.afterCached()
}

func (v *Verifier) afterCached() string {
	if v.groups != nil {
		return ofGroups
	}
	return ""
}

func (v *Verifier) shards(ctx context.Context, prefix, from string, limit int, fix bool) (VerifyResult, error) {
	page, err := v.store.ShardPage(ctx, prefix, from, limit)
	if from != "" && errors.Is(err, store.ErrRefused) {
		return VerifyResult{}, errToken
	}
	if err != nil {
		return VerifyResult{}, unavailable("reading shards", err)
	}
	r := VerifyResult{At: page.At, Shards: len(page.Shards)}
	needs := make(map[string]int) // how many shards the record of a counter must name
	for i := range page.Shards {
		if p, wrong := ShardProblem(&page, &page.Shards[i]); wrong {
			r.Problems = append(r.Problems, p)
			if p.Kind != Unreadable && p.Shard < countmill.MaxShards {
				needs[p.Counter] = max(needs[p.Counter], p.Shard+1)
			}
		}
	}
	if page.Next != "" {
		r.Next = ofShards + page.Next
	} else {
		r.Next = v.afterShards()
	}
	if !fix {
		return r, nil
	}
	for counter, shards := range needs {
		if err := v.records.Grow(ctx, []store.Growth{{Counter: counter, Shards: shards}}); err != nil {
			return VerifyResult{}, unavailable("growing a record", err)
		}
	}
	for i := range r.Problems {
		p := &r.Problems[i]
		p.Fixed = p.Kind != Unreadable && p.Shard < needs[p.Counter]
	}
	return r, nil
}

// ShardProblem compares a shard with the record of its counter.
func ShardProblem(p *store.ShardPage, s *store.Shard) (Problem, bool) {
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

// cached compares cached totals with the past. It asks for the time after the cache.
func (v *Verifier) cached(ctx context.Context, prefix, after string, limit int, fix bool) (VerifyResult, error) {
	var r VerifyResult
	limit = min(limit, maxCached)
	counters, err := v.totals.Counters(ctx, prefix, after, limit)
	if err != nil {
		return r, unavailable("listing counters", err)
	}
	if len(counters) == limit {
		r.Next = ofCached + counters[limit-1]
	} else {
		r.Next = v.afterCached()
	}
	if len(counters) == 0 {
		return r, nil
	}
	found, err := v.totals.Cached(ctx, counters)
	if err != nil {
		return r, unavailable("reading the cache", err)
	}
	now, err := v.totals.Now(ctx)
	if err != nil {
		return r, unavailable("asking the store for its time", err)
	}
	var drop []string
	for _, c := range found {
		problem, known, err := v.judgeCached(ctx, c, now)
		if err != nil {
			return VerifyResult{}, unavailable("reading the past", err)
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
			return VerifyResult{}, unavailable("dropping a cached total", err)
		}
	}
	return r, nil
}

func (v *Verifier) judgeCached(ctx context.Context, c Cached, now time.Time) (problem string, known bool, err error) {
	if c.AsOf.After(now) {
		if c.AsOf.After(now.Add(grace)) {
			return fmt.Sprintf("%d as of %s, which is to come: it is %s", c.Total, formatTime(c.AsOf), formatTime(now)), true, nil
		}
		return "", false, nil
	}
	total, known, err := v.totals.At(ctx, c.Counter, c.AsOf)
	switch {
	case errors.Is(err, countmill.ErrOverflow):
		return fmt.Sprintf("%d as of %s, when the total did not fit 64 bits", c.Total, formatTime(c.AsOf)), true, nil
	case err != nil || !known || total == c.Total:
		return "", known, err
	}
	return fmt.Sprintf("%d as of %s, when the total was %d", c.Total, formatTime(c.AsOf), total), true, nil
}

func formatTime(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000000Z") }
