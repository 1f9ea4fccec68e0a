package auth

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countmill/countmill"
)

// limitedTo returns a caller whose token has the limits.
func limitedTo(t *testing.T, l Limits) Caller {
	t.Helper()
	secret, token := newToken(t, Token{Name: "x", Scopes: []Scope{Publish}, Limits: l})
	ts, _ := opened(t, token)
	c, err := ts.Authenticate(secret)
	must(t, err)
	return c
}

// named returns n increments of counters that are numbered from from on.
func named(from, n int) []countmill.Increment {
	incs := make([]countmill.Increment, n)
	for i := range incs {
		incs[i] = countmill.Increment{Counter: fmt.Sprint("c-", from+i), Delta: 1}
	}
	return incs
}

func refusedBy(err error) (field string, retry time.Duration) {
	if q, ok := errors.AsType[*QuotaError](err); ok {
		return q.Field, q.RetryAfter
	}
	return fmt.Sprint(err), 0
}

// Over time a limit is exceeded by the allowance of a second and one request at most.
func TestQuotaIsKept(t *testing.T) {
	t.Parallel()
	const limit, largest, seconds = 1000, 5000, 600
	all := named(0, largest)
	for field, l := range map[string]Limits{"increments_per_second": {Increments: limit}, "bytes_per_second": {Bytes: limit}} {
		synctest.Test(t, func(t *testing.T) {
			c := limitedTo(t, l)
			random := rand.New(rand.NewPCG(1, 2))
			taken, began := 0, time.Now()
			for time.Since(began) < seconds*time.Second {
				n := 1 + random.IntN(largest)
				if random.IntN(2) == 0 {
					n = 1 + n/1000
				}
				incs, bytes := all[:1], n
				if l.Increments > 0 {
					incs, bytes = all[:n], 0
				}
				switch err := c.Charge(incs, len(incs), bytes); {
				case err == nil:
					taken += n
				default:
					if got, retry := refusedBy(err); got != field || retry <= 0 || retry > largest/limit*time.Second+time.Second {
						t.Fatalf("got %v, %s, want %s within the time that the largest request takes", got, retry, field)
					}
				}
				time.Sleep(time.Duration(random.IntN(100)) * time.Millisecond)
			}
			if taken < limit*seconds*95/100 || taken > limit*(seconds+1)+largest {
				t.Errorf("%s: %d were taken in %d s, want %d a second", field, taken, seconds, limit)
			}
		})
	}
}

// A request above the limit is admitted. Later ones wait for the time that the error says.
func TestLargeRequestOverdraws(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := limitedTo(t, Limits{Increments: 100})
		if err := charge(c, named(0, 1000)); err != nil {
			t.Fatalf("a large request: %v", err)
		}
		err := c.Open()
		field, retry := refusedBy(err)
		if field != "increments_per_second" || retry < 9*time.Second || retry > 9*time.Second+time.Millisecond {
			t.Fatalf("got %s after %s, want increments_per_second after 9 s", field, retry)
		}
		if err := charge(c, named(0, 1)); err == nil {
			t.Error("admitted right after")
		}
		time.Sleep(retry)
		if err := errors.Join(c.Open(), charge(c, named(0, 1000))); err != nil {
			t.Errorf("after that time: %v", err)
		}
	})
}

// New counters are limited, known ones are not.
func TestNewCountersAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const limit = 3600 // one per second
		c := limitedTo(t, Limits{NewCounters: limit})
		had := 0
		err := error(nil)
		for ; err == nil && had < 2*limit; had += 60 {
			err = charge(c, named(had, 60))
		}
		field, retry := refusedBy(err)
		if had -= 60; field != "new_counters_per_hour" || retry <= 0 || retry > 60*time.Second || had < limit || had > limit*11/10 {
			t.Fatalf("after %d counters: got %s after %s", had, field, retry)
		}
		for range 30 { // for a whole day the same counters
			if err := errors.Join(c.Open(), charge(c, named(0, had))); err != nil {
				t.Fatalf("known counters: %v", err)
			}
			time.Sleep(50 * time.Minute)
		}
		more := 0
		for from := 10_000; from < 20_000; from += 10 {
			if err := charge(c, named(from, 10)); err == nil {
				more += 10
			}
		}
		if more < limit || more > limit*11/10 {
			t.Errorf("%d new counters were taken at once after a day, want %d", more, limit)
		}
		time.Sleep(10*time.Second + time.Millisecond)
		if err := charge(c, named(30_000, 1)); err != nil {
			t.Errorf("10 s later: %v", err)
		}
	})
}

// A token whose allowance is overdrawn for hours goes on with the counters that it uses.
func TestOverdrawnTokenKeepsItsCounters(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := limitedTo(t, Limits{NewCounters: 1000})
		used := named(0, 5000)
		for began := time.Now(); time.Since(began) < 9*time.Hour; time.Sleep(7 * time.Minute) {
			if err := charge(c, used); err != nil {
				t.Fatalf("counters that are used all the time, after %s: %v", time.Since(began), err)
			}
			if err := charge(c, named(10_000, 10)); (err == nil) != (time.Since(began) > 4*time.Hour) {
				t.Fatalf("new counters after %s: %v, want them 4 h after 5 times the limit", time.Since(began), err)
			}
		}
	})
}

// A refused request changes nothing.
func TestRefusedRequestIsNotCharged(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := limitedTo(t, Limits{Increments: 10, NewCounters: 10})
		must(t, charge(c, named(0, 15)))
		for range 100 {
			if err := charge(c, named(100, 10)); err == nil {
				t.Fatal("admitted beyond the limit")
			}
		}
		time.Sleep(time.Second)
		if field, _ := refusedBy(charge(c, named(100, 1))); field != "new_counters_per_hour" {
			t.Errorf("a counter of a refused request: got %s, want it to be new still", field)
		}
		if err := charge(c, named(0, 15)); err != nil {
			t.Errorf("known counters a second later: %v", err)
		}
	})
}

// Names are remembered for an hour at least and two at most.
func TestNamesAreForgotten(t *testing.T) {
	t.Parallel()
	start := time.Unix(1e9, 0)
	for after, known := range map[time.Duration]bool{
		0: true, 59 * time.Minute: true, time.Hour: true, 2*time.Hour - 1: true, 2*time.Hour + 1: false, 100 * time.Hour: false,
	} {
		s := newNames(1000)
		s.turn(start)
		s.add(s.hash("a"), start)
		for at := start.Add(time.Minute); at.Before(start.Add(after)); at = at.Add(time.Minute) {
			s.turn(at)
		}
		s.turn(start.Add(after))
		if got := s.has(s.hash("a")); got != known {
			t.Errorf("after %s: known: %t, want %t", after, got, known)
		}
		s = newNames(1000) // no calls in between
		s.turn(start)
		s.add(s.hash("a"), start)
		s.turn(start.Add(after))
		if got := s.has(s.hash("a")); got != known {
			t.Errorf("after %s of silence: known: %t, want %t", after, got, known)
		}
	}
}

// Memory is bounded, however many names come, and nearly all new names look new.
func TestNamesAreBounded(t *testing.T) {
	t.Parallel()
	for _, limit := range []int64{1, 1000, 100_000} {
		s := newNames(limit)
		now := time.Unix(1e9, 0)
		s.turn(now)
		fresh := 0
		const all = 300_000
		for i := range all {
			if s.add(s.hash(fmt.Sprint("name-", i)), now) {
				fresh++
			}
		}
		if bytes := 8 * (len(s.now) + len(s.last)); int64(bytes) > max(8*limit, 1<<15) {
			t.Errorf("limit %d: %d bytes, want at most 8 for each", limit, bytes)
		}
		if fresh < all*93/100 {
			t.Errorf("limit %d: %d of %d new names look new", limit, fresh, all)
		}
		for i := all - s.n; i < all; i++ {
			if !s.has(s.hash(fmt.Sprint("name-", i))) {
				t.Fatalf("limit %d: the name added %d names ago is forgotten", limit, all-i)
			}
		}
	}
}

// Reloading the file does not refill a token's allowance. New limits do.
func TestQuotasOutliveAReload(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := Limits{Increments: 10}
		secret, token := newToken(t, Token{Name: "x", Scopes: []Scope{Publish}, Limits: l})
		other, second := newToken(t, Token{Name: "x", Scopes: []Scope{Publish}, Limits: l})
		_, free := newToken(t, Token{Name: "free", Scopes: []Scope{Publish}})
		ts, path := opened(t, token, second)
		charge := func(secret string) error {
			c, err := ts.Authenticate(secret)
			must(t, err)
			return charge(c, named(0, 100))
		}
		must(t, charge(secret))
		if err := charge(other); err != nil {
			t.Errorf("another token of the same name: %v", err)
		}
		write(t, path, free, token)
		ts.Reload(t.Context())
		if err := charge(secret); err == nil {
			t.Error("a reload of the file gave the token all of its limit again")
		}
		if got := ts.Refused()["x"]; got != 1 {
			t.Errorf("%d refused requests are counted, want 1", got)
		}
		token.Limits.Increments = 20
		write(t, path, token)
		ts.Reload(t.Context())
		if err := charge(secret); err != nil {
			t.Errorf("with another limit: %v", err)
		}
	})
}

func charge(c Caller, incs []countmill.Increment) error { return c.Charge(incs, len(incs), 0) }

// A request that looked at the clock, and then waited for another, is not refused for that.
func TestQuotaOfALateRequest(t *testing.T) {
	t.Parallel()
	began := time.Now()
	q := newQuota(Limits{Increments: 2}, began)
	for i, at := range []time.Time{began.Add(time.Second), began} {
		if err := q.charge(nil, 1, 0, at); err != nil {
			t.Errorf("request %d of 2, as many as the limit: %v", i+1, err)
		}
	}
}
