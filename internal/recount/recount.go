// Package recount computes the sums of counters again from the journal, compares them with the stored sums, and
// corrects the stored ones.
//
// Proof. A counter's total is its opening balance (journal.OpeningBalance), and the increments of the
// journal since the place of the opening balance. An opening balance says which counters existed at its place, so a
// counter that is not in it began at 0. A recount judges a counter only if a rule for the journal had it
// without a gap since an opening balance, and no record since then has gone or was erased. Of other counters it
// says why it does not judge them, and never guesses.
//
//	total of a counter   opening balance + increments since
//	bucket of a series   increments of its minute, if no fold before the opening balance can have added to it
//
// Groups are not recounted: "countmill verify" compares them with their counters, and a new index of the same pattern corrects a wrong one.
//
// Journal and sums are read in one view, so folds beside it never look like damage. Each part counts once,
// in however many records it is.
//
// Memory. At most Config.AtOnce calls work at the same time. A call works at a range: the counters whose wire.Order is in a range. Parts are compared
// with each other in several rounds over the journal, each for a share of the ids, and a range with too many
// counters is made smaller. So the journal may be larger than memory: a call holds at most
// Config.MostParts ids of 16 bytes, and Config.MostSums sums and findings.
//
// A correction is a commit of its own: a delta, or deltas of buckets, a record of it in the journal, and a
// marker. The marker's id names the sum and the last correction of it in the view. So of two recounts that have
// found the same damage one corrects it, and a repeat after an unknown outcome changes nothing.
package recount

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/internal/clock"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/int128"
	"github.com/countmill/countmill/wire"
)

// Store is the part of a store that a Recounter needs.
type Store interface {
	store.Journal
	store.Folder
	Check(ctx context.Context) (store.Checked, error)
	Grow(ctx context.Context, growths []store.Growth) error
	store.Survey
}

// Config has the settings of a Recounter. Zero values mean the defaults.
type Config struct {
	// CallTimeout is the time-out of each call to the store. Default 30 seconds.
	CallTimeout time.Duration
	// MostParts is the most ids of parts in memory. Default 4 million: 144 MiB.
	MostParts int
	// AtOnce is the most calls that work at the same time: each has its own memory. Further ones wait. Default 2.
	AtOnce int
	// MostSums is the most totals, buckets and findings in memory. Default 500,000.
	MostSums int
	// MostFindings is the most findings of a range, unless it has one place. Default 20,000: a client reads an answer of 16 MiB.
	MostFindings int
	// MostTended is the most counters of a rule for which Tend writes opening balances. For more a person does, at a quiet
	// hour (Query.Open). Default 10,000.
	MostTended int

	env *clock.Env // of a simulation (clock.With), otherwise nil
}

var _ = clock.Hook(func(c *Config, e *clock.Env) { c.env = e })

// A Recounter recounts the counters of one database. Its methods may be called concurrently.
type Recounter struct {
	store Store
	cfg   Config
	turns chan struct{}
}

// New returns a Recounter.
func New(s Store, cfg Config) *Recounter {
	cfg.CallTimeout, cfg.AtOnce = cmp.Or(cfg.CallTimeout, 30*time.Second), cmp.Or(cfg.AtOnce, 2)
	cfg.MostParts, cfg.MostSums = cmp.Or(cfg.MostParts, 4<<20), cmp.Or(cfg.MostSums, 500_000)
	cfg.MostTended, cfg.MostFindings = cmp.Or(cfg.MostTended, 10_000), cmp.Or(cfg.MostFindings, 20_000)
	return &Recounter{s, cfg, make(chan struct{}, cfg.AtOnce)}
}

// A Query says what to recount.
type Query struct {
	// Prefix begins the names of the counters. No group has a journal of its own.
	Prefix string
	// Range is empty for the first range, or the Next of the Result before.
	Range string
	// Repair corrects what differs.
	Repair bool
	// Open writes opening balances after the comparison.
	Open bool
}

// The kinds of a Finding.
const (
	WrongTotal    = "total"
	WrongBucket   = "bucket"
	MissingRecord = "missing" // the journal has increments of a counter that has no record
)

// A Finding is a sum that differs from the journal.
type Finding struct {
	Kind string
	Name string
	// Minute is the first of a bucket; 0 for a total. Quarter is true for a quarter hour.
	Minute  wire.Minute
	Quarter bool
	// Stored is the sum in the store, and Counted that of the journal.
	Stored, Counted int128.Int
	// Fixed says that this call has corrected it. Detail says why not; empty without Repair.
	Fixed  bool
	Detail string
}

// An Unjudged is a counter that was not compared.
type Unjudged struct{ Name, Reason string }

// maxUnjudged is the most names of Result.Unjudged, beside the first one of each reason.
const maxUnjudged = 100

// A Result is that of one range.
type Result struct {
	// At is the moment of all sums, and of the journal.
	At       time.Time
	Findings []Finding
	// Counters and Buckets are how many were compared.
	Counters, Buckets int
	// Reasons count the names that were not compared, by reason. Unjudged has the first 100 of them, and the first one of
	// each reason.
	Reasons  map[string]int
	Unjudged []Unjudged
	// Entries is the number of entries of the journal that were read; each range reads all.
	Entries int64
	// Opened is the number of counters with a new opening balance.
	Opened int
	// Next is the Range of the next call; empty at the end. Done is the share of all places up to the end of
	// this range, in thousandths.
	Next string
	Done int
}

// ErrEarly is the answer to Query.Open right after a rule was added: commits without it may still come.
var ErrEarly = errors.New("a rule for the journal does not hold yet")

// Recount recounts one range. Errors match countmill.ErrInvalid, countmill.ErrUnavailable, also with ErrEarly, or for a
// correction or an opening balance countmill.ErrOutcomeUnknown. You may repeat the call.
func (r *Recounter) Recount(ctx context.Context, q Query) (Result, error) {
	p, err := parseRange(q.Range)
	if err != nil {
		return Result{}, err
	}
	if countmill.IsGroup(q.Prefix) {
		return Result{}, &countmill.FieldError{Field: "prefix", Problem: "is of groups, which have no journal: countmill verify compares them with their counters", Limit: "the beginning of a counter's name"}
	}
	select {
	case r.turns <- struct{}{}:
		defer func() { <-r.turns }()
	case <-ctx.Done():
		return Result{}, fmt.Errorf("%w: waiting for %d other recounts: %w", countmill.ErrUnavailable, r.cfg.AtOnce, ctx.Err())
	}
	seen := newPartSet()
	for rounds := uint64(1); ; {
		result, err := r.run(ctx, &q, p, seen, rounds)
		more, full := errors.AsType[*fullError](err)
		switch {
		case err == nil:
			result.Next, result.Done = p.next(), p.done()
			return result, nil
		case !full:
			return Result{}, r.classify(err)
		case more.rounds > maxRounds:
			return Result{}, fmt.Errorf("%w: the journal has over %d parts", countmill.ErrUnavailable, maxRounds*r.cfg.MostParts)
		case more.rounds > 0:
			rounds = more.rounds
		case p.From == p.To:
			return Result{}, fmt.Errorf("%w: one counter has more than %d buckets", countmill.ErrUnavailable, r.cfg.MostSums)
		default:
			p = p.half()
		}
	}
}

func (r *Recounter) classify(err error) error {
	for _, known := range []error{countmill.ErrInvalid, countmill.ErrUnavailable, countmill.ErrOutcomeUnknown, ErrEarly} {
		if errors.Is(err, known) {
			return err
		}
	}
	return fmt.Errorf("%w: recounting: %w", countmill.ErrUnavailable, err)
}

// maxRounds bounds the rounds over the journal.
const maxRounds = 4096

// A fullError ends a run that would need more memory than it may.
type fullError struct{ rounds uint64 } // 0: too many sums

func (e *fullError) Error() string { return "the range is too large" }

// A run is one attempt at a range, in one view.
type run struct {
	*Recounter
	q        *Query
	keyRange keyRange
	rules    *store.Rules
	set      store.Settings
	view     store.JournalView
	at       time.Time          // the view's moment
	cut      store.JournalPlace // of opening balances that this run writes
	cover    coverage
	sums     map[string]*sum
	held     int            // sums, buckets and findings
	shards   map[string]int // of the records of wrong totals
	result   Result
}

func (r *Recounter) run(ctx context.Context, q *Query, p keyRange, seen *partSet, rounds uint64) (Result, error) {
	x := &run{Recounter: r, q: q, keyRange: p, sums: make(map[string]*sum), shards: make(map[string]int)}
	x.result.Reasons = make(map[string]int)
	x.view = r.store.JournalView()
	defer x.view.Close()
	if err := x.readOpeningBalances(ctx); err != nil {
		return Result{}, err
	}
	x.result.At = x.at
	if err := x.mayOpen(); err != nil {
		return Result{}, err
	}
	if err := x.readBalances(ctx); err != nil {
		return Result{}, err
	}
	for round := range rounds {
		if err := x.readJournal(ctx, seen, round, rounds); err != nil {
			return Result{}, err
		}
	}
	if err := x.judgeCounters(ctx); err != nil {
		return Result{}, err
	}
	if q.Repair {
		if err := x.repair(ctx); err != nil {
			return Result{}, err
		}
	}
	if q.Open {
		if err := x.writeOpeningBalances(ctx); err != nil {
			return Result{}, fmt.Errorf("%w: writing opening balances, some may be written: %w", countmill.ErrOutcomeUnknown, err)
		}
	}
	return x.result, nil
}

// timed makes one call to the store.
func timed[T any](ctx context.Context, r *Recounter, call func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, r.cfg.CallTimeout)
	defer cancel()
	return call(ctx)
}

// has reports whether this run is about the name.
func (x *run) has(name string) bool {
	return strings.HasPrefix(name, x.q.Prefix) && x.keyRange.has(name)
}

// uncovered notes a counter without a proof by the journal, with a hint for the operator.
func (x *run) uncovered(name, reason string) {
	switch {
	case reason == noRule:
	case !x.q.Open:
		reason += openLater
	default:
		reason += openedNow
	}
	x.unjudged(name, reason)
}

func (x *run) unjudged(name, reason string) {
	x.result.Reasons[reason]++
	if len(x.result.Unjudged) < maxUnjudged || x.result.Reasons[reason] == 1 {
		x.result.Unjudged = append(x.result.Unjudged, Unjudged{name, reason})
	}
}

// find adds a finding, which takes as much memory as a sum.
func (x *run) find(f Finding) error {
	x.result.Findings = append(x.result.Findings, f)
	if len(x.result.Findings) > x.cfg.MostFindings && x.keyRange.From < x.keyRange.To {
		return &fullError{}
	}
	return x.hold()
}
