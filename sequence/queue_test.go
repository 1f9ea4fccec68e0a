package sequence

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/internal/clock"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/engine/memory"
	"github.com/countmill/countmill/store/protocol/protocoltest"
)

func newIssuer(t *testing.T, s Store, cfg Config) *Issuer {
	t.Helper()
	x, err := New(s, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// A caller that leaves in the moment of its answer has the answer: values are not lost, and an error is not
// replaced by a vaguer one.
func TestLeaveAfterTheAnswer(t *testing.T) {
	t.Parallel()
	x := newIssuer(t, protocoltest.New(protocoltest.Options{}), Config{})
	r := countmill.NextRequest{Sequence: "a", Count: 2}
	given, refused := x.newCall(&r), x.newCall(&r)
	x.answer([]*call{given, refused}, []store.Given{{First: 5, Count: 2}, {}})
	x.leave("a", given, context.Canceled)
	x.leave("a", refused, context.Canceled)
	if given.err != nil || given.given.First != 5 {
		t.Errorf("the call with values: %+v, %v", given.given, given.err)
	}
	if !errors.Is(refused.err, countmill.ErrExhausted) {
		t.Errorf("the call without values: %v, want ErrExhausted", refused.err)
	}
}

// The machine is suspended after a transaction with an unknown outcome, until ids are forgotten. Its marker may
// be gone: the outcome stays unknown, and the call is not repeated.
func TestSuspendedBetweenTries(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var slept time.Duration
		wall := func() time.Time { return time.Now().Add(slept) }
		s := protocoltest.New(protocoltest.Options{Clock: wall, Errorf: t.Errorf})
		n := 0
		s.DB.Around(func(c *memory.Call, do func() error) error {
			if err := do(); c.Op != memory.Transact {
				return err
			}
			n++
			slept += countmill.DefaultDedupWindow + time.Hour // the monotonic clock stops meanwhile
			return context.DeadlineExceeded
		})
		x := newIssuer(t, s, clock.With(Config{}, &clock.Env{Wall: wall}))
		v, err := x.Next(t.Context(), countmill.NextRequest{Sequence: "a", ID: "x"})
		if !errors.Is(err, countmill.ErrOutcomeUnknown) || errors.Is(err, countmill.ErrIDExpired) || !strings.Contains(err.Error(), "longer ago than ids are remembered") {
			t.Errorf("got %v, %v; want ErrOutcomeUnknown because of the time", v, err)
		}
		if n != 1 {
			t.Errorf("%d transactions, want 1", n)
		}
		if err := x.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// suspendedReader is a store whose answer with the settings is read after a suspension.
type suspendedReader struct {
	*protocoltest.Store
	suspend func()
}

func (s suspendedReader) Check(ctx context.Context) (store.Checked, error) {
	checked, err := s.Store.Check(ctx)
	s.suspend()
	return checked, err
}

// Settings are as old as the call that read them, also if the machine was suspended before it had the answer. The marker
// of an earlier try may be gone by then.
func TestSuspendedWhileReadingSettings(t *testing.T) {
	t.Parallel()
	for _, age := range []func() time.Duration{nil, func() time.Duration { return 0 }} { // like Datastore, like Pebble
		synctest.Test(t, func(t *testing.T) {
			var slept, sleep time.Duration
			wall := func() time.Time { return time.Now().Add(slept) }
			s := protocoltest.New(protocoltest.Options{Clock: wall, MachineClock: age != nil, Age: age, Errorf: t.Errorf})
			x := newIssuer(t, suspendedReader{s, func() { slept, sleep = slept+sleep, 0 }}, clock.With(Config{}, &clock.Env{Wall: wall}))
			r := countmill.NextRequest{Sequence: "a", ID: "x", Time: wall()}
			if v, err := x.Next(t.Context(), r); err != nil || v.First != 1 {
				t.Fatalf("got %v, %v", v, err)
			}
			<-time.After(2 * store.SettingsMaxAge)
			sleep = countmill.DefaultDedupWindow + 2*store.MarkerSlack
			v, err := x.Next(t.Context(), r)
			if !errors.Is(err, countmill.ErrUnavailable) {
				t.Errorf("got %v, %v; want ErrUnavailable", v, err)
			}
			if n := s.Calls("tx marker"); n != 1 {
				t.Errorf("%d transactions, want 1", n)
			}
			if err := x.Close(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// neverApplies is a store whose transactions are not applied, which it learns when they are canceled.
type neverApplies struct{ *protocoltest.Store }

func (neverApplies) NextValues(ctx context.Context, _ string, _ []store.Take) ([]store.Given, error) {
	<-ctx.Done()
	return nil, store.ErrNotApplied
}

// A call that Close ends took no values if the store is sure of it.
func TestCloseBeforeATransaction(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		x := newIssuer(t, neverApplies{protocoltest.New(protocoltest.Options{})}, Config{})
		ended := make(chan error, 1)
		go func() {
			_, err := x.Next(t.Context(), countmill.NextRequest{Sequence: "a"})
			ended <- err
		}()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := x.Close(ctx); err == nil {
			t.Error("Close in the middle of a transaction: no error")
		}
		began := time.Now()
		if err := <-ended; !errors.Is(err, countmill.ErrClosed) || errors.Is(err, countmill.ErrOutcomeUnknown) || time.Since(began) > time.Second {
			t.Errorf("after %s: %v; want ErrClosed at once", time.Since(began), err)
		}
	})
}

// While one call reads the settings, the others use those of before, if they are young enough. Otherwise they wait,
// as long as their contexts allow.
func TestOneCallReadsTheSettings(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := protocoltest.New(protocoltest.Options{Errorf: t.Errorf})
		x := newIssuer(t, s, Config{})
		first, err := x.settings(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		x.known.checking <- struct{}{} // another call reads them
		time.Sleep(store.SettingsMaxAge - time.Second)
		began := time.Now()
		if got, err := x.settings(t.Context()); err != nil || got.ForgetBefore != first.ForgetBefore || time.Since(began) > 0 {
			t.Errorf("with usable settings: %+v, %v, after %s; want %+v at once", got, err, time.Since(began), first)
		}
		time.Sleep(time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if got, err := x.settings(ctx); !errors.Is(err, context.DeadlineExceeded) || s.Calls("check") != 1 {
			t.Errorf("with old settings: %+v, %v, after %d checks; want its deadline after 1", got, err, s.Calls("check"))
		}
		if len(x.known.checking) != 1 {
			t.Error("the call that gave up ended the turn of the other one")
		}
		time.AfterFunc(time.Second, func() { <-x.known.checking })
		if got, err := x.settings(t.Context()); err != nil || !got.ForgetBefore.After(first.ForgetBefore) {
			t.Errorf("when the other call has ended: %+v, %v; want newer settings than %+v", got, err, first)
		}
	})
}

// A call whose transactions were not applied took no values. The store takes no time, so that no transaction runs
// at the deadline.
func TestNeverApplied(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := protocoltest.New(protocoltest.Options{Errorf: t.Errorf})
		s.On("tx marker", func(int) protocoltest.Answer { return protocoltest.NotApplied })
		x := newIssuer(t, s, Config{})
		_, err := x.Next(t.Context(), countmill.NextRequest{Sequence: "a"})
		if !errors.Is(err, countmill.ErrUnavailable) || !errors.Is(err, store.ErrNotApplied) || errors.Is(err, countmill.ErrOutcomeUnknown) {
			t.Errorf("got %v, want ErrUnavailable with the last error", err)
		}
		if n := s.Calls("tx marker"); n < 3 {
			t.Errorf("%d transactions until the deadline, want more", n)
		}
		if err := x.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
