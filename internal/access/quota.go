package access

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/countmill/countmill"
)

// Limits of a token; 0 is no limit. Each process counts by itself: with two processes a token may
// send twice as much.
type Limits struct {
	Increments  int64 // a second
	Bytes       int64 // of requests' bodies, a second
	NewCounters int64 // an hour: names that the token has not named within the last hour
}

// What limits may be. Names take 4 to 8 bytes of memory for each new counter of an hour.
const (
	maxPerSecond   = 1_000_000_000_000
	maxNewCounters = 10_000_000
)

// named calls f with each limit, by the name that it has in the file.
func (l *Limits) named(f func(field string, limit *int64, most int64)) {
	f("increments_per_second", &l.Increments, maxPerSecond)
	f("bytes_per_second", &l.Bytes, maxPerSecond)
	f("new_counters_per_hour", &l.NewCounters, maxNewCounters)
}

func (l Limits) check(scopes []Scope) error {
	var errs []error
	l.named(func(field string, limit *int64, most int64) {
		switch {
		case *limit < 0 || *limit > most:
			errs = append(errs, fmt.Errorf("%s: must be an integer from 1 to %d", field, most))
		case *limit > 0 && !(&Token{Scopes: scopes}).has(Publish):
			errs = append(errs, fmt.Errorf("%s: bounds counting, and the scopes lack %s", field, Publish))
		}
	})
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

// A bucket is the allowance of now. One request may overdraw it. Time refills it.
type bucket struct {
	level, full, perSecond float64
}

// fullBucket is a bucket for a limit within a time, and holds all of it.
func fullBucket(limit int64, within time.Duration) bucket {
	return bucket{float64(limit), float64(limit), float64(limit) / within.Seconds()}
}

func (b *bucket) refill(d time.Duration) { b.level = min(b.full, b.level+d.Seconds()*b.perSecond) }

// empty returns after how long something is in the bucket; 0 for at once.
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
	for _, b := range []*bucket{&q.increments, &q.bytes, &q.counters} {
		b.refill(now.Sub(q.at))
	}
	q.at = now
}

// openLocked returns the refusal of any request, nil while some are admitted.
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
func (q *quota) charge(incs []countmill.Increment, bytes int, now time.Time) error {
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
	q.increments.level -= float64(len(incs))
	q.bytes.level -= float64(bytes)
	return nil
}

// nameLocked notes the counters of a request. A request without new counters is admitted also
// when there may be no new ones.
func (q *quota) nameLocked(incs []countmill.Increment, now time.Time) error {
	q.seen.turn(now)
	wait := q.counters.empty()
	for _, inc := range incs {
		switch hash := q.seen.hash(inc.Counter); {
		case wait == 0 && q.seen.add(hash, now):
			q.counters.level--
		case wait > 0 && !q.seen.has(hash):
			return q.refuseLocked("new_counters_per_hour", q.limits.NewCounters, wait)
		}
	}
	return nil
}

// keepQuotas gives each token with limits a quota: its last one, if its limits are the same.
func (s *tokenSet) keepQuotas(was *tokenSet, now time.Time) {
	had := make(map[[sha256.Size]byte]*quota)
	if was != nil {
		for _, t := range was.tokens {
			had[t.hash] = t.quota
		}
	}
	for i := range s.tokens {
		t := &s.tokens[i]
		if t.Limits == (Limits{}) {
			continue
		}
		if t.quota = had[t.hash]; t.quota == nil || t.quota.limits != t.Limits {
			t.quota = newQuota(t.Limits, now)
		}
	}
}

// Open returns a *QuotaError while the caller may count nothing, before a request costs
// anything.
func (c Caller) Open() error {
	q := c.quota()
	if q == nil {
		return nil
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.openLocked(time.Now())
}

// Charge counts a request towards the limits of the caller's token, or returns a *QuotaError.
// While a limit is not reached any request is admitted, however large: later requests wait for
// as long as it takes to make up for it.
func (c Caller) Charge(incs []countmill.Increment, bytes int) error {
	q := c.quota()
	if q == nil {
		return nil
	}
	return q.charge(incs, bytes, time.Now())
}

// quota is nil for a caller without limits.
func (c Caller) quota() *quota {
	if c.token == nil {
		return nil
	}
	return c.token.quota
}

// Refused is how many requests the limits of tokens refused, by the tokens' names.
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
