package reader_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/reader"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/wire"
)

func receiptOf(spans ...wire.Span) wire.Receipt {
	return wire.Receipt{Time: time.Now().Truncate(time.Microsecond), Spans: spans}
}

// The totals are those after the last completion, however long that takes within the wait. One call looks up
// all completions that are missing, and the pauses grow.
func TestTotalsAfter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st := &fakeStore{}
		st.put("c", 1)
		r := newReader(t, st, nil, reader.Config{})
		flush := wire.FlushHash{1}
		receipt := receiptOf(wire.Span{Flush: flush, First: 2, Last: 4})
		st.mark(flush.Completion(3), store.CompletionCounted)
		go func() {
			time.Sleep(time.Second)
			st.mark(flush.Completion(2), store.CompletionCounted)
			time.Sleep(time.Second / 2)
			st.put("c", 7)
			st.mark(flush.Completion(4), store.CompletionCounted)
		}()
		began := time.Now()
		got, err := r.TotalsAfter(t.Context(), []string{"c"}, receipt, 2*time.Second, time.Time{})
		if err != nil || got.Totals[0].Total != 7 || got.DeadLetters != nil || time.Since(began) > 1750*time.Millisecond {
			t.Errorf("%+v, %v after %s; want 7", got, err, time.Since(began))
		}
		if st.completions[0] != 3 || st.completions[1] != 2 || st.completions[len(st.completions)-1] != 1 || len(st.completions) > 25 {
			t.Errorf("looked up %v completions, want 3, then 2 and 1, in few calls", st.completions)
		}
		s := r.Stats()
		if s.Awaited != 1 || s.CompletionLookups != int64(len(st.completions)) || s.Completions == 0 {
			t.Errorf("stats: %+v", s)
		}
	})
}

// Every reason why there are no totals has an error of its own.
func TestTotalsAfterRefuses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st := &fakeStore{expired: time.Now().Add(-time.Hour)}
		st.put("c", 1)
		r := newReader(t, st, nil, reader.Config{Database: wire.TagOf("mine")})
		receipt := receiptOf(wire.Span{Flush: wire.FlushHash{1}})
		old, other, unknown := receipt, receipt, receipt
		old.Time = st.expired.Add(-time.Microsecond)
		other.Database, unknown.Database = wire.TagOf("another"), wire.DatabaseTag{}
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		for name, tc := range map[string]struct {
			ctx     context.Context
			receipt wire.Receipt
			wait    time.Duration
			want    error
			within  time.Duration
		}{
			"missing":          {t.Context(), receipt, 0, countmill.ErrNotCountedYet, 0},
			"missing, waits":   {t.Context(), receipt, time.Second, countmill.ErrNotCountedYet, time.Second},
			"waits too long":   {t.Context(), receipt, time.Hour, countmill.ErrNotCountedYet, reader.MaxWait},
			"expired":          {t.Context(), old, time.Second, countmill.ErrReceiptExpired, 0},
			"another database": {t.Context(), other, time.Second, countmill.ErrOtherDatabase, 0},
			"no database":      {t.Context(), unknown, 0, countmill.ErrNotCountedYet, 0},
			"caller is gone":   {gone, receipt, time.Second, context.Canceled, 0},
		} {
			began := time.Now()
			_, err := r.TotalsAfter(tc.ctx, []string{"c"}, tc.receipt, tc.wait, time.Time{})
			if !errors.Is(err, tc.want) || time.Since(began) != tc.within {
				t.Errorf("%s: %v after %s, want %v after %s", name, err, time.Since(began), tc.want, tc.within)
			}
		}
		if got, err := r.TotalsAfter(t.Context(), []string{"c"}, receiptOf(), 0, time.Time{}); err != nil || got.Totals[0].Total != 1 {
			t.Errorf("a receipt of nothing: %+v, %v", got, err)
		}
		if _, err := r.TotalsAfter(t.Context(), []string{""}, receiptOf(), 0, time.Time{}); !errors.Is(err, countmill.ErrInvalid) {
			t.Errorf("a bad name: %v", err)
		}
		st.breakWith(errAway)
		if _, err := r.TotalsAfter(t.Context(), []string{"c"}, receipt, time.Second, time.Time{}); !errors.Is(err, countmill.ErrUnavailable) {
			t.Errorf("a store that is unavailable: %v", err)
		}
	})
}

// A letter is named while any of its parts is not counted. The markers of parts decide, not the letter.
func TestTotalsAfterNamesDeadLetters(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st := &fakeStore{refs: make(map[wire.PartID][]store.DeadLetterRef)}
		st.put("c", 1)
		r := newReader(t, st, nil, reader.Config{})
		flush := wire.FlushHash{1}
		completion := flush.Completion(0)
		st.mark(completion, store.CompletionDeadLettered)
		a, b, follower := wire.IncrementID("c", "a"), wire.IncrementID("c", "b"), wire.KeyID("", "k", 1)
		st.refs[completion] = []store.DeadLetterRef{
			{Completion: completion, Key: "two", Parts: []store.DeadLetterPart{{ID: a, Fingerprint: 1}, {ID: b, Fingerprint: 2}}},
			{Completion: completion, Key: "follower", Parts: []store.DeadLetterPart{{ID: follower, Fingerprint: 3}}},
			{Completion: completion, Key: "unread"},
		}
		check := func(when string, want ...reader.DeadLetterRef) {
			t.Helper()
			got, err := r.TotalsAfter(t.Context(), []string{"c"}, receiptOf(wire.Span{Flush: flush}), 0, time.Time{})
			if diff := cmp.Diff(want, got.DeadLetters); diff != "" || err != nil {
				t.Errorf("%s: %v, set aside (-want +got):\n%s", when, err, diff)
			}
		}
		check("at first", reader.DeadLetterRef{Key: "follower"}, reader.DeadLetterRef{Key: "two"}, reader.DeadLetterRef{Key: "unread"})
		st.mark(a, 1)
		st.mark(b, 99) // another increment's
		check("one part counted, an id used by another", reader.DeadLetterRef{Key: "follower"}, reader.DeadLetterRef{Key: "two"}, reader.DeadLetterRef{Key: "unread"})
		st.mark(wire.RenewedOf(b, 2), 2)
		st.mark(wire.DeadLetterID("unread"), wire.Fingerprint(store.DecisionDiscarded))
		check("the other as new, a letter discarded", reader.DeadLetterRef{Key: "follower"}, reader.DeadLetterRef{Key: "unread", Discarded: true})
		st.mark(follower, 3)
		check("a part of a request counted", reader.DeadLetterRef{Key: "unread", Discarded: true})
	})
}

// A part that is its own completion is found by one look-up. Only if it is not, a completion says that it is in a
// letter.
func TestTotalsAfterASinglePart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st := &fakeStore{refs: make(map[wire.PartID][]store.DeadLetterRef)}
		st.put("c", 1)
		r := newReader(t, st, nil, reader.Config{})
		flush := wire.FlushHash{1}
		receipt := receiptOf(wire.Span{Flush: flush, Single: true})
		st.mark(flush.Single(0), 12345)
		if got, err := r.TotalsAfter(t.Context(), []string{"c"}, receipt, 0, time.Time{}); err != nil || got.DeadLetters != nil || len(st.completions) != 1 {
			t.Errorf("%+v, %v with look-ups of %v; want one", got, err, st.completions)
		}
		other := wire.FlushHash{2}
		receipt = receiptOf(wire.Span{Flush: other, Single: true})
		if _, err := r.TotalsAfter(t.Context(), []string{"c"}, receipt, 0, time.Time{}); !errors.Is(err, countmill.ErrNotCountedYet) {
			t.Errorf("nothing is there: %v", err)
		}
		st.mark(other.Completion(0), store.CompletionDeadLettered)
		st.refs[other.Completion(0)] = []store.DeadLetterRef{{Completion: other.Completion(0), Key: "x"}}
		got, err := r.TotalsAfter(t.Context(), []string{"c"}, receipt, 0, time.Time{})
		if diff := cmp.Diff([]reader.DeadLetterRef{{Key: "x"}}, got.DeadLetters); diff != "" || err != nil {
			t.Errorf("%v, set aside (-want +got):\n%s", err, diff)
		}
	})
}

// A reader that was suspended believes that a receipt has not expired. It does not take removed dead-letter references
// for increments that were counted.
func TestTotalsAfterDeadLetterRefsAreGone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st := &fakeStore{}
		st.put("c", 1)
		r := newReader(t, st, nil, reader.Config{})
		receipt := receiptOf(wire.Span{Flush: wire.FlushHash{1}})
		st.mark(wire.FlushHash{1}.Completion(0), store.CompletionDeadLettered)
		ask := func() error {
			_, err := r.TotalsAfter(t.Context(), []string{"c"}, receipt, 0, time.Time{})
			return err
		}
		if err := ask(); err != nil {
			t.Errorf("before: %v", err)
		}
		st.expired = receipt.Time.Add(time.Second) // while the last check seems to be new
		if err := ask(); !errors.Is(err, countmill.ErrReceiptExpired) {
			t.Errorf("got %v, want ErrReceiptExpired", err)
		}
	})
}

// noDeadLetters is a store that cannot look up dead letters.
type noDeadLetters struct{ fakeStore }

func (*noDeadLetters) DeadLetterRefs(context.Context, []wire.PartID) ([]store.DeadLetterRef, error) {
	return nil, errAway
}

// Without its dead letters a receipt has no answer: a message that was set aside would count as counted.
func TestTotalsAfterWithoutDeadLetters(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st := &noDeadLetters{}
		st.put("c", 1)
		r := newReader(t, st, nil, reader.Config{})
		flush := wire.FlushHash{1}
		st.mark(flush.Completion(0), store.CompletionDeadLettered)
		got, err := r.TotalsAfter(t.Context(), []string{"c"}, receiptOf(wire.Span{Flush: flush}), 0, time.Time{})
		if !errors.Is(err, countmill.ErrUnavailable) || !errors.Is(err, errAway) || r.Stats().StoreErrors != 1 {
			t.Errorf("%+v, %v, after %d errors of the store; want ErrUnavailable with the store's, after 1", got, err, r.Stats().StoreErrors)
		}
	})
}

// The look-ups for receipts take turns with all other reads.
func TestTotalsAfterTakesTurns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		completion := wire.FlushHash{1}.Completion(0)
		st := &fakeStore{refs: map[wire.PartID][]store.DeadLetterRef{completion: {{Completion: completion, Key: "x"}}}}
		st.put("c", 1)
		st.mark(completion, store.CompletionDeadLettered)
		var inside atomic.Int64
		calls := make(chan string, 100)
		st.called = func(_ context.Context, call string) {
			if call == "check" || call == "workers" {
				return
			}
			if calls <- call; inside.Add(1) > 1 {
				t.Errorf("%s beside another read, with room for one key", call)
			}
			time.Sleep(time.Second)
			inside.Add(-1)
		}
		r := newReader(t, st, nil, reader.Config{KeysAtOnce: 1, Timeout: time.Hour})
		var callers sync.WaitGroup
		for range 3 {
			callers.Go(func() {
				if _, err := r.TotalsAfter(t.Context(), []string{"c"}, receiptOf(wire.Span{Flush: wire.FlushHash{1}}), 0, time.Time{}); err != nil {
					t.Error(err)
				}
			})
		}
		callers.Wait()
		close(calls)
		count := make(map[string]int)
		for call := range calls {
			count[call]++
		}
		if diff := cmp.Diff(map[string]int{"applied": 6, "refs": 3, "lookup": 3}, count); diff != "" {
			t.Errorf("calls (-want +got):\n%s", diff)
		}
	})
}
