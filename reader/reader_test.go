package reader_test

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.uber.org/goleak"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/reader"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/int128"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var ignoreAsOf = cmpopts.IgnoreFields(reader.Total{}, "AsOf")

func TestTotalsAreSumsInTheOrderAsked(t *testing.T) {
	t.Parallel()
	st := &fakeStore{}
	st.put("a", 1)
	st.put("b", 5, -7, 40)
	st.put("z", -3)
	r := newReader(t, st, nil, reader.Config{})
	asked := strings.Split("z b absent a b", " ")
	got, err := r.Totals(t.Context(), asked, 0)
	if err != nil {
		t.Fatal(err)
	}
	b := reader.Total{Counter: "b", Total: 38, Source: "store", Shards: 3, Exists: true}
	want := []reader.Total{
		{Counter: "z", Total: -3, Source: "store", Shards: 1, Exists: true}, b,
		{Counter: "absent", Source: "store"},
		{Counter: "a", Total: 1, Source: "store", Shards: 1, Exists: true}, b,
	}
	if diff := cmp.Diff(want, got, ignoreAsOf); diff != "" {
		t.Errorf("totals (-want +got):\n%s", diff)
	}
	for _, total := range got {
		if !total.AsOf.Equal(got[0].AsOf) || total.AsOf.IsZero() {
			t.Errorf("%s is as of %s, %s as of %s: want one moment", total.Counter, total.AsOf, got[0].Counter, got[0].AsOf)
		}
	}
	if st.open != 0 {
		t.Errorf("%d views left open", st.open)
	}
	for _, name := range r.Remembered() {
		if slices.ContainsFunc(asked, func(cut string) bool { return unsafe.StringData(cut) == unsafe.StringData(name) }) {
			t.Errorf("%s is cut from a request, and keeps it in memory", name)
		}
	}
}

func TestTotalsRefuseBadNames(t *testing.T) {
	t.Parallel()
	r := newReader(t, &fakeStore{}, nil, reader.Config{})
	_, err := r.Totals(t.Context(), []string{"ok", ""}, 0)
	var field *countmill.FieldError
	if !errors.As(err, &field) || field.Index == nil || *field.Index != 1 || !errors.Is(err, countmill.ErrInvalid) {
		t.Errorf("error is %v, want a FieldError at 1", err)
	}
	_, err = r.Totals(t.Context(), []string{""}, 0)
	if !errors.As(err, &field) || field.Index != nil {
		t.Errorf("of one name: error is %v, want a FieldError without an index", err)
	}
}

func TestOverflowIsAnErrorAndNeverANumber(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		shards []store.Value
		want   int64
		over   bool
	}{
		"at the top":        {vals(math.MaxInt64-1, 1), math.MaxInt64, false},
		"over the top":      {vals(math.MaxInt64, 1), 0, true},
		"at the bottom":     {vals(math.MinInt64+1, -1), math.MinInt64, false},
		"below the bottom":  {vals(math.MinInt64, -1), 0, true},
		"fits in the end":   {vals(math.MaxInt64, math.MaxInt64, math.MinInt64, math.MinInt64), -2, false},
		"twice round":       {vals(math.MaxInt64, math.MaxInt64, 2), 0, true},
		"a shard too large": {[]store.Value{{Exists: true, Count: int128.Int{Hi: 1}}}, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			st := &fakeStore{}
			st.put("fine", 1)
			st.putValues("c", tc.shards...)
			r := newReader(t, st, nil, reader.Config{})
			totals, err := r.Totals(t.Context(), []string{"fine", "c"}, 0)
			if !tc.over {
				if err != nil || totals[1].Total != tc.want {
					t.Errorf("Totals = %+v, %v; want %d", totals, err, tc.want)
				}
				return
			}
			var over *reader.OverflowError
			if !errors.Is(err, countmill.ErrOverflow) || !errors.As(err, &over) || over.Counter != "c" ||
				len(totals) != 2 || totals[0].Total != 1 || totals[0].Overflow || !totals[1].Overflow || totals[1].Total != 0 {
				t.Errorf("Totals = %+v, %v; want 1, and an OverflowError of c", totals, err)
			}
		})
	}
}

func vals(vs ...int64) []store.Value {
	var values []store.Value
	for _, v := range vs {
		values = append(values, store.Value{Exists: true, Count: int128.Of(v)})
	}
	return values
}

func TestRecordOutOfRange(t *testing.T) {
	t.Parallel()
	st := &fakeStore{}
	st.putValues("c", make([]store.Value, countmill.MaxShards+1)...)
	r := newReader(t, st, nil, reader.Config{})
	if _, err := r.Totals(t.Context(), []string{"c"}, 0); err == nil {
		t.Error("a record of 1,000 shards was believed")
	}
	st.put("a", 1)
	if page, err := r.List(t.Context(), "", "", 10); err == nil {
		t.Errorf("a record of 1,000 shards was believed, or left out of the page %+v", page)
	}
}

// A store that breaks its contract breaks no reader.
func TestAStoreThatAnswersTooLittle(t *testing.T) {
	t.Parallel()
	st := &shortStore{}
	st.put("c", 1)
	if _, err := newReader(t, st, nil, reader.Config{}).Totals(t.Context(), []string{"c"}, 0); !errors.Is(err, countmill.ErrUnavailable) {
		t.Errorf("error is %v, want ErrUnavailable", err)
	}
}

// A shortStore leaves the last answer out.
type shortStore struct{ fakeStore }

func (s *shortStore) View() store.View { return shortView{s.fakeStore.View()} }

type shortView struct{ store.View }

func (v shortView) Lookup(ctx context.Context, keys []store.Key) ([]store.Value, error) {
	values, err := v.View.Lookup(ctx, keys)
	return values[:len(values)-1], err
}

func TestCallerDeadline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st := &fakeStore{before: func(ctx context.Context, _ int) error { <-ctx.Done(); return ctx.Err() }}
		r := newReader(t, st, nil, reader.Config{})
		for _, maxStaleness := range []time.Duration{0, time.Second} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			_, err := r.Totals(ctx, []string{"c"}, maxStaleness)
			if !errors.Is(err, countmill.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("at the deadline the error is %v, want ErrUnavailable and DeadlineExceeded", err)
			}
			cancel()
			_, err = r.Totals(ctx, []string{"c"}, maxStaleness)
			if err == nil {
				t.Error("an ended context was served")
			}
		}
	})
}

// Another database has totals too, and they are wrong.
func TestAnotherDatabaseIsNotRead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st := &fakeStore{}
		st.put("c", 7)
		r := newReader(t, st, nil, reader.Config{})
		one(t, r, "c", 0)
		st.mu.Lock()
		st.foreign = errors.New("meta id changed")
		st.mu.Unlock()
		time.Sleep(9 * time.Second)
		one(t, r, "c", 0)
		time.Sleep(time.Second)
		for range 2 {
			if _, err := r.Totals(t.Context(), []string{"c"}, 0); !errors.Is(err, countmill.ErrUnavailable) {
				t.Errorf("error is %v, want ErrUnavailable", err)
			}
			if _, err := r.List(t.Context(), "", "", 1); !errors.Is(err, countmill.ErrUnavailable) {
				t.Errorf("list: error is %v, want ErrUnavailable", err)
			}
		}
		if _, err := r.Ready(t.Context()); !errors.Is(err, countmill.ErrUnavailable) || !strings.Contains(err.Error(), "meta id changed") {
			t.Errorf("Ready: %v, want the reason", err)
		}
		st.mu.Lock()
		st.foreign = nil
		st.mu.Unlock()
		one(t, r, "c", 0)
	})
}

func TestConfigReportsEverything(t *testing.T) {
	t.Parallel()
	_, err := reader.New(&fakeStore{}, nil, reader.Config{Timeout: -1, Guess: 1000, Remember: -1})
	for _, want := range []string{"Timeout", "Guess", "Remember"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v does not name %s", err, want)
		}
	}
	if _, err := reader.New(nil, nil, reader.Config{}); err == nil {
		t.Error("a nil store was accepted")
	}
}
