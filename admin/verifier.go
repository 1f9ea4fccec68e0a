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
)

// A Problem is a wrong shard or a wrong group.
type Problem struct {
	Kind    string
	Counter string
	Shard   int // -1 if it is about no shard
	Detail  string
	Fixed   bool
}

// Records are the records of counters, as a Verifier changes them.
type Records interface {
	// Grow is the method of store.Records.
	Grow(ctx context.Context, growths []store.Growth) error
}

// A Verifier compares shards with the records of their counters, and groups with their counters, page by page.
//
// Shards and records of a page are read at one moment. A fold grows the record before it writes
// the shard, or together with it. So a fold that is under way is never reported.
//
// A repair grows the record until it covers the shards, which only ever adds folded increments
// to totals. The rest is for a person.
type Verifier struct {
	store   store.Survey
	records Records
	groups  GroupReads // nil: groups are not compared
}

// NewVerifier returns a verifier.
func NewVerifier(survey store.Survey, records Records) *Verifier {
	return &Verifier{store: survey, records: records}
}

// A VerifyResult is the result of a page.
type VerifyResult struct {
	At       time.Time // of the shards, or of the groups
	Problems []Problem
	// Shards is how many were compared with their records.
	Shards int
	// Groups is how many groups were compared with the sums of their counters.
	Groups int
	// Next is the from of the next page; empty at the end.
	Next string
}

// A page token begins with the kind of its page: shards come first, then groups.
const (
	ofShards = "s"
	ofGroups = "g"
)

var errToken = &countmill.FieldError{Field: "page_token", Problem: "is not a page token of this endpoint", Limit: "the next_page_token of the page before, with the same prefix"}

// ShardsOf returns the shards of one counter.
func (v *Verifier) ShardsOf(ctx context.Context, counter string) (store.ShardPage, error) {
	page, err := v.store.ShardsOf(ctx, counter)
	return page, unavailable("reading shards", err)
}

// Page checks one page of the shards of counters that begin with prefix, or the groups of an index. It
// begins at the start if from is empty. With fix it makes the repairs that are safe. Errors match countmill.ErrInvalid,
// countmill.ErrUnavailable or, with fix, countmill.ErrOutcomeUnknown; you may repeat Page.
func (v *Verifier) Page(ctx context.Context, prefix, from string, limit int, fix bool) (VerifyResult, error) {
	switch {
	case from == "":
		return v.shards(ctx, prefix, "", limit, fix)
	case from[:1] == ofShards:
		return v.shards(ctx, prefix, from[1:], limit, fix)
	case from[:1] == ofGroups && v.groups != nil:
		return v.groupPage(ctx, prefix, from[1:])
	}
	return VerifyResult{}, errToken
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
	} else if v.groups != nil {
		r.Next = ofGroups
	}
	if !fix {
		return r, nil
	}
	changed := false
	for counter, shards := range needs {
		if err := v.records.Grow(ctx, []store.Growth{{Counter: counter, Shards: shards}}); err != nil {
			return VerifyResult{}, changing("growing a record", err, changed)
		}
		changed = true
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
