package auth

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/countmill/countmill"
)

// Limits are the limits of a token; 0 means no limit. Each process counts by itself, so with two
// processes a token may send twice as much.
type Limits struct {
	Increments  int64 `json:"increments_per_second,omitzero"` // per second
	Bytes       int64 `json:"bytes_per_second,omitzero"`      // of request bodies, per second
	NewCounters int64 `json:"new_counters_per_hour,omitzero"` // per hour: names that the token has not used within the last hour
}

// limitFields are their names in the file.
var limitFields = []string{"increments_per_second", "bytes_per_second", "new_counters_per_hour"}

// The largest limits. A new counter takes 4 to 8 bytes of memory for an hour.
const (
	maxPerSecond   = 1_000_000_000_000
	maxNewCounters = 10_000_000
)

// all are the limits in the order of limitFields.
func (l Limits) all() []int64 { return []int64{l.Increments, l.Bytes, l.NewCounters} }

func (l Limits) check(scopes []Scope) error {
	var errs []error
	for i, limit := range l.all() {
		most := int64(maxPerSecond)
		if i == 2 {
			most = maxNewCounters
		}
		switch {
		case limit < 0 || limit > most:
			errs = append(errs, fmt.Errorf("%s: must be an integer from 1 to %d", limitFields[i], most))
		case limit > 0 && !slices.Contains(scopes, Publish):
			errs = append(errs, fmt.Errorf("%s: limits counting, but the scopes lack %s", limitFields[i], Publish))
		}
	}
	return errors.Join(errs...)
}

// A QuotaError says that a token has reached one of its limits. Nothing was done.
type QuotaError struct {
	Field      string // of the file: increments_per_second, ...
	Limit      int64
	RetryAfter time.Duration // until the token may count again
}

func (e *QuotaError) Error() string {
	return fmt.Sprintf("this token has reached its limit %s (limit: %d)", e.Field, e.Limit)
}

// A bucket is the present allowance. One request may overdraw it. Time refills it.
type bucket struct {
	level, full, perSecond float64
}

// fullBucket returns a full bucket for a limit within a time.
func fullBucket(limit int64, within time.Duration) bucket {
	return bucket{float64(limit), float64(limit), float64(limit) / within.Seconds()}
}

func (b *bucket) refill(d time.Duration) { b.level = min(b.full, b.level+d.Seconds()*b.perSecond) }

// empty returns how long the bucket stays empty; 0 if it is not.
func (b *bucket) empty() time.Duration {
	if b.level > 0 || b.full == 0 {
		return 0
	}
	return time.Duration(-b.level/b.perSecond*float64(time.Second)) + time.Nanosecond
}

// A quota is the state of a token's limits.
type quota struct {
	limits Limits

	mu                          sync.Mutex
	at                          time.Time // of the last refill
	increments, bytes, counters bucket
	seen                        names
	refused                     int64
}

func newQuota(l Limits, now time.Time) *quota {
	return &quota{
		limits: l, at: now,
		increments: fullBucket(l.Increments, time.Second),
		bytes:      fullBucket(l.Bytes, time.Second),
		counters:   fullBucket(l.NewCounters, time.Hour),
		seen:       newNames(l.NewCounters),
	}
}

func (q *quota) refillLocked(now time.Time) {
	if now.Before(q.at) { // its request waited for another, which looked at the clock later
		return
	}
	for _, b := range []*bucket{&q.increments, &q.bytes, &q.counters} {
		b.refill(now.Sub(q.at))
	}
	q.at = now
}

// openLocked returns an error if every request would be refused now.
func (q *quota) openLocked(now time.Time) error {
	q.refillLocked(now)
	if wait := q.increments.empty(); wait > 0 {
		return q.refuseLocked("increments_per_second", q.limits.Increments, wait)
	}
	if wait := q.bytes.empty(); wait > 0 {
		return q.refuseLocked("bytes_per_second", q.limits.Bytes, wait)
	}
	return nil
}

func (q *quota) refuseLocked(field string, limit int64, wait time.Duration) error {
	q.refused++
	return &QuotaError{Field: field, Limit: limit, RetryAfter: wait}
}

// charge admits a request, or changes nothing.
func (q *quota) charge(incs []countmill.Increment, n, bytes int, now time.Time) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if err := q.openLocked(now); err != nil {
		return err
	}
	if q.limits.NewCounters > 0 {
		if err := q.nameLocked(incs, now); err != nil {
			return err
		}
	}
	q.increments.level -= float64(n)
	q.bytes.level -= float64(bytes)
	return nil
}

// nameLocked records the counters of a request. It admits a request without new counters even if no new
// ones are allowed.
func (q *quota) nameLocked(incs []countmill.Increment, now time.Time) error {
	q.seen.turn(now)
	wait := q.counters.empty()
	for i := range incs {
		if wait > 0 && !q.seen.has(q.seen.hash(incs[i].Counter)) {
			return q.refuseLocked("new_counters_per_hour", q.limits.NewCounters, wait)
		}
	}
	for i := range incs { // known ones too: they are used, and must not be forgotten
		if q.seen.add(q.seen.hash(incs[i].Counter), now) && wait == 0 {
			q.counters.level--
		}
	}
	return nil
}

// Open returns a *QuotaError while the caller may count nothing. Call it before spending work on a
// request.
func (c Caller) Open() error {
	q := c.quota()
	if q == nil {
		return nil
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.openLocked(time.Now())
}

// Charge counts a request of n increments towards the limits of the caller's token, or returns a
// *QuotaError. Until a limit is reached it admits any request, however large. Later requests wait
// until the limit has made up for it. incs may be nil if the caller is not Metered.
func (c Caller) Charge(incs []countmill.Increment, n, bytes int) error {
	q := c.quota()
	if q == nil {
		return nil
	}
	return q.charge(incs, n, bytes, time.Now())
}

// Metered reports whether Charge needs the names of counters.
func (c Caller) Metered() bool {
	q := c.quota()
	return q != nil && q.limits.NewCounters > 0
}

// quota returns nil for a caller without limits.
func (c Caller) quota() *quota {
	if c.token == nil {
		return nil
	}
	return c.token.quota
}

// Refused returns the number of requests that limits refused, by the tokens' names.
func (t *Tokens) Refused() map[string]int64 {
	all := make(map[string]int64)
	for _, token := range t.set.Load().tokens {
		if q := token.quota; q != nil {
			q.mu.Lock()
			all[token.Name] += q.refused
			q.mu.Unlock()
		}
	}
	return all
}
