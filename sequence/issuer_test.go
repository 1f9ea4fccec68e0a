package sequence_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/sequence"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/protocol/protocoltest"
	"github.com/countmill/countmill/wire"
)

// inBubble runs a test with an Issuer over a fake store whose calls take 10 ms.
func inBubble(t *testing.T, cfg sequence.Config, f func(t *testing.T, x *sequence.Issuer, s *protocoltest.Store)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := protocoltest.New(protocoltest.Options{Latency: 10 * time.Millisecond, Errorf: t.Errorf})
		x, err := sequence.New(s, cfg)
		if err != nil {
			t.Fatal(err)
		}
		f(t, x, s)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := x.Close(ctx); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
}

func next(t *testing.T, x *sequence.Issuer, r countmill.NextRequest) countmill.Values {
	t.Helper()
	v, err := x.Next(t.Context(), r)
	if err != nil {
		t.Fatalf("Next(%+v): %v", r, err)
	}
	return v
}

// wantErr checks the error of a request.
func wantErr(t *testing.T, x *sequence.Issuer, r countmill.NextRequest, want error, says string) {
	t.Helper()
	if v, err := x.Next(t.Context(), r); !errors.Is(err, want) || !strings.Contains(err.Error(), says) {
		t.Errorf("Next(%+v): got %v, %v, want %v with %q", r, v, err, want, says)
	}
}

func TestNextGivesValues(t *testing.T) {
	inBubble(t, sequence.Config{}, func(t *testing.T, x *sequence.Issuer, _ *protocoltest.Store) {
		for _, tc := range []struct {
			r    countmill.NextRequest
			want countmill.Values
		}{
			{countmill.NextRequest{Sequence: "a"}, countmill.Values{First: 1, Last: 1}},
			{countmill.NextRequest{Sequence: "a", ID: "x", Count: 5}, countmill.Values{First: 2, Last: 6}},
			{countmill.NextRequest{Sequence: "a", ID: "y"}, countmill.Values{First: 7, Last: 7}},
			{countmill.NextRequest{Sequence: "a", ID: "x", Count: 5, Time: time.Now().Add(-time.Hour)}, countmill.Values{First: 2, Last: 6}},
			{countmill.NextRequest{Sequence: "b", ID: "x"}, countmill.Values{First: 1, Last: 1}},
			{countmill.NextRequest{Sequence: "a", Count: countmill.MaxValues}, countmill.Values{First: 8, Last: 1007}},
		} {
			if got := next(t, x, tc.r); got != tc.want {
				t.Errorf("%+v: got %v, want %v", tc.r, got, tc.want)
			}
		}
		if got := x.Stats(); got.Calls != 6 || got.Values != 1013 || got.Waiting != 0 {
			t.Errorf("stats: got %+v, want 6 calls and 1013 values", got)
		}
		if got, err := x.State(t.Context(), "a"); err != nil || !got.Exists() || got.Last != 1007 {
			t.Errorf("state: got %+v, %v", got, err)
		}
	})
}

func TestNextRefuses(t *testing.T) {
	inBubble(t, sequence.Config{}, func(t *testing.T, x *sequence.Issuer, s *protocoltest.Store) {
		for says, r := range map[string]countmill.NextRequest{
			"sequence is empty":           {},
			"sequence begins with =":      {Sequence: "=group"},
			"id is too long":              {Sequence: "a", ID: strings.Repeat("x", 129)},
			"count is out of range":       {Sequence: "a", Count: countmill.MaxValues + 1},
			"time is given without an id": {Sequence: "a", Time: time.Now()},
			"time is out of range":        {Sequence: "a", ID: "x", Time: time.Now().Add(25 * time.Hour)},
		} {
			wantErr(t, x, r, countmill.ErrInvalid, says)
		}
		wantErr(t, x, countmill.NextRequest{Sequence: "a", Count: -1}, countmill.ErrInvalid, "1 to 1000")
		if n := s.Calls("tx marker"); n != 0 {
			t.Errorf("refused requests made %d transactions", n)
		}
		next(t, x, countmill.NextRequest{Sequence: "a", ID: "x", Count: 2})
		wantErr(t, x, countmill.NextRequest{Sequence: "a", ID: "x", Count: 3}, countmill.ErrConflict, "got 2 values before, and now asks for 3")
		given, err := s.NextValues(t.Context(), "a", []store.Take{{ID: wire.SequenceID("a", "z"), Count: math.MaxInt - 4}})
		if err != nil || given[0].Count == 0 {
			t.Fatal(given, err)
		}
		wantErr(t, x, countmill.NextRequest{Sequence: "a", Count: 3}, countmill.ErrExhausted, "fewer than 3")
		if got := next(t, x, countmill.NextRequest{Sequence: "a", Count: 2}); got.Last != math.MaxInt64 {
			t.Errorf("the last values: got %v", got)
		}
	})
}

// A repeat with the time of its first request is refused when its id may be forgotten. Without a time it
// gets new values then.
func TestRepeatAfterTheWindow(t *testing.T) {
	inBubble(t, sequence.Config{}, func(t *testing.T, x *sequence.Issuer, s *protocoltest.Store) {
		first := time.Now()
		timed := countmill.NextRequest{Sequence: "a", ID: "timed", Time: first}
		plain := countmill.NextRequest{Sequence: "a", ID: "plain"}
		next(t, x, timed)
		next(t, x, plain)
		for range 9 * 24 {
			time.Sleep(time.Hour)
			s.Expire()
			v, err := x.Next(t.Context(), timed)
			if err == nil && v.First != 1 || err != nil && !errors.Is(err, countmill.ErrIDExpired) {
				t.Fatalf("%s after the first request: got %v, %v", time.Since(first), v, err)
			}
			if expired := time.Since(first) > countmill.DefaultDedupWindow; (err != nil) != expired {
				t.Fatalf("%s after the first request: got %v", time.Since(first), err)
			}
		}
		if got := next(t, x, plain); got.First != 3 {
			t.Errorf("a repeat without a time: got %v, want the new value 3", got)
		}
	})
}

// Calls for one sequence that wait at the same time share a transaction.
func TestCallsShareTransactions(t *testing.T) {
	inBubble(t, sequence.Config{}, func(t *testing.T, x *sequence.Issuer, s *protocoltest.Store) {
		var mu sync.Mutex
		seen := make(map[int64]bool)
		var callers sync.WaitGroup
		for range 250 {
			callers.Go(func() {
				v := next(t, x, countmill.NextRequest{Sequence: "a"})
				mu.Lock()
				defer mu.Unlock()
				seen[v.First] = true
			})
		}
		callers.Wait()
		if len(seen) != 250 || !seen[1] || !seen[250] {
			t.Errorf("250 calls got %d values", len(seen))
		}
		if n := s.Calls("tx marker"); n > 4 {
			t.Errorf("250 calls made %d transactions, want at most 4", n)
		}
	})
}

// A sequence whose transaction gets no answer holds up no other one, however many calls it has.
func TestSequencesDoNotWaitForEachOther(t *testing.T) {
	inBubble(t, sequence.Config{Transactions: 2}, func(t *testing.T, x *sequence.Issuer, s *protocoltest.Store) {
		s.On("tx marker", protocoltest.Script(protocoltest.SlowNotApplied))
		var slow sync.WaitGroup
		for range 300 {
			slow.Go(func() { next(t, x, countmill.NextRequest{Sequence: "slow"}) })
		}
		time.Sleep(100 * time.Millisecond) // so that it writes before the others
		began := time.Now()
		for i := range 20 {
			next(t, x, countmill.NextRequest{Sequence: fmt.Sprint(i)})
		}
		if took := time.Since(began); took > time.Second {
			t.Errorf("20 other sequences took %s", took)
		}
		slow.Wait()
	})
}

// Two busy sequences take turns where only one transaction may run.
func TestQueuesTakeTurns(t *testing.T) {
	inBubble(t, sequence.Config{Transactions: 1}, func(t *testing.T, x *sequence.Issuer, s *protocoltest.Store) {
		var busy sync.WaitGroup
		for range 900 { // nine transactions
			busy.Go(func() { next(t, x, countmill.NextRequest{Sequence: "busy"}) })
		}
		synctest.Wait()
		next(t, x, countmill.NextRequest{Sequence: "other"})
		if got, err := s.Sequence(t.Context(), "busy"); err != nil || got.Last > 300 {
			t.Errorf("the other sequence waited until the busy one was at %d, %v", got.Last, err)
		}
		busy.Wait()
	})
}

// A transaction with an unknown outcome is repeated under the same ids: no value is given twice, and none
// is left out.
func TestUnknownOutcomesAreRepeated(t *testing.T) {
	inBubble(t, sequence.Config{Timeout: time.Minute}, func(t *testing.T, x *sequence.Issuer, s *protocoltest.Store) {
		s.On("tx marker", func(n int) protocoltest.Answer {
			return []protocoltest.Answer{protocoltest.UnknownApplied, protocoltest.UnknownNotApplied, protocoltest.SlowApplied, protocoltest.ContendedApplied, protocoltest.Deployment, protocoltest.NotApplied, protocoltest.OK}[(n-1)%7]
		})
		for i := range int64(20) {
			r := countmill.NextRequest{Sequence: "a"}
			if i%2 == 0 {
				r.ID = fmt.Sprint(i)
			}
			if got := next(t, x, r); got.First != i+1 {
				t.Fatalf("call %d got %v", i, got)
			}
		}
	})
}

// The error of a call shows whether it may have taken values.
func TestOutcomes(t *testing.T) {
	for name, tc := range map[string]struct {
		answers []protocoltest.Answer // the last one for ever
		check   protocoltest.Answer
		want    error
	}{
		"no answer":                     {[]protocoltest.Answer{protocoltest.SlowNotApplied}, protocoltest.OK, countmill.ErrOutcomeUnknown},
		"unknown, then unavailable":     {[]protocoltest.Answer{protocoltest.UnknownApplied, protocoltest.Deployment}, protocoltest.OK, countmill.ErrOutcomeUnknown},
		"refused by the store":          {[]protocoltest.Answer{protocoltest.Deployment}, protocoltest.OK, countmill.ErrUnavailable},
		"settings that cannot be read":  {nil, protocoltest.Deployment, countmill.ErrUnavailable},
		"settings without an answer":    {nil, protocoltest.SlowNotApplied, countmill.ErrUnavailable},
		"contention that does not stop": {[]protocoltest.Answer{protocoltest.ContendedNotApplied}, protocoltest.OK, countmill.ErrOutcomeUnknown},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, sequence.Config{}, func(t *testing.T, x *sequence.Issuer, s *protocoltest.Store) {
				s.On("check", func(int) protocoltest.Answer { return tc.check })
				if len(tc.answers) > 0 {
					s.On("tx marker", func(n int) protocoltest.Answer { return tc.answers[min(n, len(tc.answers))-1] })
				}
				began := time.Now()
				wantErr(t, x, countmill.NextRequest{Sequence: "a", ID: "x"}, tc.want, "")
				if took := time.Since(began); took > 10*time.Second {
					t.Errorf("the call took %s, want at most its Timeout", took)
				}
			})
		})
	}
}

// A caller that leaves before a transaction has its call gets no values, and others go on.
func TestCallerLeaves(t *testing.T) {
	inBubble(t, sequence.Config{Transactions: 1}, func(t *testing.T, x *sequence.Issuer, s *protocoltest.Store) {
		s.On("tx marker", protocoltest.Script(protocoltest.SlowApplied))
		short := func(name string) error {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, err := x.Next(ctx, countmill.NextRequest{Sequence: name})
			return err
		}
		var both sync.WaitGroup
		both.Go(func() {
			if err := short("a"); !errors.Is(err, countmill.ErrOutcomeUnknown) {
				t.Errorf("a call that a transaction had: got %v, want ErrOutcomeUnknown", err)
			}
		})
		synctest.Wait()
		both.Go(func() {
			if err := short("b"); !errors.Is(err, countmill.ErrUnavailable) || errors.Is(err, countmill.ErrOutcomeUnknown) {
				t.Errorf("a call that no transaction had: got %v, want ErrUnavailable", err)
			}
		})
		both.Wait()
		if got := next(t, x, countmill.NextRequest{Sequence: "b"}); got.First != 1 {
			t.Errorf("sequence b: got %v, want 1", got)
		}
		if got := next(t, x, countmill.NextRequest{Sequence: "a"}); got.First != 2 {
			t.Errorf("sequence a: got %v, want 2, because the lost call had 1", got)
		}
	})
}

func TestBounds(t *testing.T) {
	inBubble(t, sequence.Config{Transactions: 1, MaxCalls: 30, MaxCallsOfOne: 20}, func(t *testing.T, x *sequence.Issuer, s *protocoltest.Store) {
		s.On("tx marker", protocoltest.Script(protocoltest.SlowNotApplied))
		var all sync.WaitGroup
		call := func(name string) { all.Go(func() { next(t, x, countmill.NextRequest{Sequence: name}) }) }
		call("a")
		synctest.Wait()
		for range 20 {
			call("a")
		}
		synctest.Wait()
		wantErr(t, x, countmill.NextRequest{Sequence: "a"}, countmill.ErrOverloaded, "20 calls for values of sequence \"a\" wait (limit: 20)")
		for i := range 10 {
			call(fmt.Sprint(i))
		}
		synctest.Wait()
		wantErr(t, x, countmill.NextRequest{Sequence: "b"}, countmill.ErrOverloaded, "limit: 30")
		if got := x.Stats().Waiting; got != 30 {
			t.Errorf("%d calls wait, want 30", got)
		}
		all.Wait()
		if got := x.Stats().Waiting; got != 0 {
			t.Errorf("%d calls wait at the end", got)
		}
	})
}

// Transactions stop when the settings were not read for a minute, and go on with older ones until then.
func TestSettingsAreYoung(t *testing.T) {
	inBubble(t, sequence.Config{}, func(t *testing.T, x *sequence.Issuer, s *protocoltest.Store) {
		next(t, x, countmill.NextRequest{Sequence: "a"})
		s.On("check", func(int) protocoltest.Answer { return protocoltest.Deployment })
		time.Sleep(store.SettingsMaxAge - time.Second)
		next(t, x, countmill.NextRequest{Sequence: "a"})
		time.Sleep(time.Second)
		wantErr(t, x, countmill.NextRequest{Sequence: "a"}, countmill.ErrUnavailable, "settings")
		s.On("check", nil)
		next(t, x, countmill.NextRequest{Sequence: "a"})
		calls := s.Calls("check")
		for range 9 {
			time.Sleep(time.Second - 10*time.Millisecond)
			next(t, x, countmill.NextRequest{Sequence: "a"})
		}
		if got := s.Calls("check") - calls; got > 1 {
			t.Errorf("9 seconds of calls read the settings %d times", got)
		}
	})
}

func TestDelete(t *testing.T) {
	inBubble(t, sequence.Config{}, func(t *testing.T, x *sequence.Issuer, s *protocoltest.Store) {
		next(t, x, countmill.NextRequest{Sequence: "a", Count: 3})
		s.On("tx sequence", protocoltest.Script(protocoltest.UnknownNotApplied, protocoltest.OK, protocoltest.Deployment))
		if got, err := x.Delete(t.Context(), "a"); err != nil || !got.Exists() || got.Last != 3 {
			t.Errorf("delete: got %+v, %v", got, err)
		}
		if _, err := x.Delete(t.Context(), "a"); !errors.Is(err, countmill.ErrUnavailable) {
			t.Errorf("delete that the store refuses: got %v", err)
		}
		if got, err := x.State(t.Context(), "a"); err != nil || got.Exists() || got.Last != 3 {
			t.Errorf("state: got %+v, %v", got, err)
		}
		if got := next(t, x, countmill.NextRequest{Sequence: "a"}); got.First != 4 {
			t.Errorf("after the delete: got %v, want 4", got)
		}
		for _, answer := range []protocoltest.Answer{protocoltest.UnknownNotApplied, protocoltest.NotApplied} {
			s.On("tx sequence", func(int) protocoltest.Answer { return answer })
			want := countmill.ErrOutcomeUnknown
			if answer == protocoltest.NotApplied {
				want = countmill.ErrUnavailable
			}
			if _, err := x.Delete(t.Context(), "a"); !errors.Is(err, want) {
				t.Errorf("delete without an end: got %v, want %v", err, want)
			}
		}
		if _, err := x.Delete(t.Context(), ""); !errors.Is(err, countmill.ErrInvalid) {
			t.Errorf("delete of nothing: got %v", err)
		}
		if _, err := x.State(t.Context(), ""); !errors.Is(err, countmill.ErrInvalid) {
			t.Errorf("state of nothing: got %v", err)
		}
	})
}

func TestClose(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := protocoltest.New(protocoltest.Options{Latency: 10 * time.Millisecond, Errorf: t.Errorf})
		s.On("tx marker", protocoltest.Script(protocoltest.OK, protocoltest.SlowApplied))
		x, err := sequence.New(s, sequence.Config{})
		if err != nil {
			t.Fatal(err)
		}
		next(t, x, countmill.NextRequest{Sequence: "a"})
		var running sync.WaitGroup
		running.Go(func() {
			_, err := x.Next(context.Background(), countmill.NextRequest{Sequence: "a"})
			if !errors.Is(err, countmill.ErrOutcomeUnknown) {
				t.Errorf("a call during Close: got %v, want ErrOutcomeUnknown", err)
			}
		})
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := x.Close(ctx); err == nil {
			t.Error("Close before the end of a call: got no error")
		}
		running.Wait()
		wantErr(t, x, countmill.NextRequest{Sequence: "a"}, countmill.ErrClosed, "")
		if err := x.Close(t.Context()); err != nil {
			t.Errorf("Close again: %v", err)
		}
	})
	if _, err := sequence.New(nil, sequence.Config{Timeout: -1, MaxCalls: -1}); err == nil || !strings.Contains(err.Error(), "MaxCalls") {
		t.Errorf("a negative config: got %v", err)
	}
}

// Calls with one id that wait together get the same values, and the store sees the id once in a transaction.
func TestCallsWithOneID(t *testing.T) {
	inBubble(t, sequence.Config{Transactions: 1}, func(t *testing.T, x *sequence.Issuer, _ *protocoltest.Store) {
		var callers sync.WaitGroup
		call := func(r countmill.NextRequest, want int64) {
			callers.Go(func() {
				if v := next(t, x, r); v.First != want {
					t.Errorf("%+v: got %v, want %d", r, v, want)
				}
			})
			synctest.Wait()
		}
		call(countmill.NextRequest{Sequence: "a"}, 1)
		for range 3 {
			call(countmill.NextRequest{Sequence: "a", ID: "x", Count: 2}, 2)
		}
		callers.Wait()
	})
}
