package admin_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/admin"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/int128"
	"github.com/countmill/countmill/store/protocol/protocoltest"
	"github.com/countmill/countmill/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// counters is a store, and looks counters of at most 20 shards up in it.
type counters struct {
	*protocoltest.Store
	// between runs after a look-up.
	between func(*store.Sum) error
	slept   time.Duration // what only the store's clock saw
}

func (c *counters) Sum(ctx context.Context, counter string) (store.Sum, error) {
	v := c.View()
	defer v.Close()
	keys := []store.Key{{Counter: counter, Shard: store.RecordKey}}
	for n := range 20 {
		keys = append(keys, store.Key{Counter: counter, Shard: n})
	}
	values, err := v.Lookup(ctx, keys)
	if err != nil {
		return store.Sum{}, errors.Join(countmill.ErrUnavailable, err)
	}
	rec := values[0]
	s := store.Sum{Exists: rec.Exists, At: v.ReadTime(), ResetState: store.ResetState{
		Baseline: rec.Reset.Baseline, ResetAt: rec.Reset.ResetAt, DeletedAt: rec.Reset.DeletedAt,
	}}
	for _, value := range values[1:] {
		s.Sum = s.Sum.Add(value.Count)
	}
	if c.between != nil {
		err = c.between(&s)
	}
	return s, err
}

// total returns the total as a reader would.
func (c *counters) total(t *testing.T, counter string) int64 {
	t.Helper()
	between := c.between
	c.between = nil
	defer func() { c.between = between }()
	s, err := c.Sum(t.Context(), counter)
	if err != nil {
		t.Fatal(err)
	}
	n, fits := s.Sum.Sub(s.Baseline).Int64()
	if !fits {
		t.Fatalf("a total of %d", s.Sum.Sub(s.Baseline))
	}
	return n
}

func (c *counters) add(t *testing.T, counter string, delta int64) {
	t.Helper()
	if err := c.Grow(t.Context(), []store.Growth{{Counter: counter, Shards: 1}}); err != nil {
		t.Fatal(err)
	}
	add := store.NewShardDelta(counter, 0, delta)
	if _, err := c.Fold(t.Context(), &store.Commit{Adds: []store.ShardDelta{add}}); err != nil {
		t.Fatal(err)
	}
}

// window is not the default one.
const window = 3 * time.Hour

func newAdmin(t *testing.T) (*admin.Admin, *counters) {
	t.Helper()
	c := &counters{}
	c.Store = protocoltest.New(protocoltest.Options{
		Errorf: t.Errorf, NeedRecords: true, Window: window, Clock: func() time.Time { return time.Now().Add(c.slept) },
	})
	a, err := admin.New(c, c, admin.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return a, c
}

func TestRaise(t *testing.T) {
	t.Parallel()
	a, c := newAdmin(t)
	for _, step := range []struct {
		counter string
		shards  int
		named   int
		wrong   string
	}{
		{"a", 0, 0, "shards is out of range (limit: 1 to 999)"},
		{"a", 1000, 0, "shards is out of range (limit: 1 to 999)"},
		{"", 5, 0, "counter is empty (limit: 1 to 500 bytes)"},
		{"a", 40, 40, ""},
		{"a", 40, 40, ""},
		{"a", 39, 40, `counter "a" has 40 shards, and a number of shards is never lowered (asked for: 39)`},
		{"a", 999, 999, ""},
	} {
		err := a.Grow(t.Context(), step.counter, step.shards)
		if step.wrong == "" && err != nil || step.wrong != "" && (err == nil || err.Error() != step.wrong) {
			t.Errorf("Raise %q to %d: got %v, want %q", step.counter, step.shards, err, step.wrong)
		}
		if got, err := c.Shards(t.Context(), []string{"a"}); got[0] != step.named || err != nil {
			t.Errorf("Raise %q to %d: the record names %v, %v, want %d", step.counter, step.shards, got, err, step.named)
		}
	}
	if got := a.Stats(); got != (admin.Stats{Grown: 3}) {
		t.Errorf("stats: got %+v, want 3 raises", got)
	}
	if _, err := a.Delete(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	lower, is := errors.AsType[*admin.LowerError](a.Grow(t.Context(), "a", 998))
	if got, err := c.Shards(t.Context(), []string{"a"}); !is || lower.Named != 999 || got[0] != 0 || err != nil {
		t.Errorf("fewer shards for a deleted counter: got %v; %v shards, %v, want a refusal that leaves it deleted", lower, got, err)
	}
}

func TestResetAndDelete(t *testing.T) {
	t.Parallel()
	a, c := newAdmin(t)
	steps := []struct {
		add     int64
		do      func() (admin.Done, error)
		what    string
		remove  int64
		left    int64
		existed bool
	}{
		{5, func() (admin.Done, error) { return a.Reset(t.Context(), "a", "") }, "reset", 5, 0, true},
		{0, func() (admin.Done, error) { return a.Reset(t.Context(), "a", "") }, "reset again", 0, 0, true},
		{-2, func() (admin.Done, error) { return a.Reset(t.Context(), "a", "x") }, "reset x", -2, 0, true},
		{7, func() (admin.Done, error) { return a.Reset(t.Context(), "a", "x") }, "reset x again", -2, 7, true},
		{1, func() (admin.Done, error) { return a.Delete(t.Context(), "a") }, "delete", 8, 0, true},
		{0, func() (admin.Done, error) { return a.Delete(t.Context(), "a") }, "delete again", 0, 0, false},
		{3, func() (admin.Done, error) { return a.Reset(t.Context(), "a", "x") }, "reset x at last", -2, 3, true},
		{0, func() (admin.Done, error) { return a.Reset(t.Context(), "a", "y") }, "reset y", 3, 0, true},
	}
	for _, step := range steps {
		if step.add != 0 {
			c.add(t, "a", step.add)
		}
		done, err := step.do()
		if err != nil || done.Removed != int128.Of(step.remove) || done.At.IsZero() || done.Existed != step.existed {
			t.Errorf("%s: got %+v, %v, want %d removed, existed: %t", step.what, done, err, step.remove, step.existed)
		}
		if got := c.total(t, "a"); got != step.left {
			t.Errorf("%s: leaves %d, want %d", step.what, got, step.left)
		}
	}
	if got, want := a.Stats(), (admin.Stats{Resets: 6, Deletes: 2}); got != want {
		t.Errorf("stats: got %+v, want %+v", got, want)
	}
	if done, err := a.Delete(t.Context(), "nobody's"); done.Removed != int128.Of(0) || done.Existed || err != nil {
		t.Errorf("delete of no counter: got %+v, %v", done, err)
	}
	for id, wrong := range map[string]string{
		strings.Repeat("x", 129): "id is too long (limit: 1 to 128 bytes)", "a\xff": "id is not valid UTF-8 (limit: valid UTF-8)",
	} {
		if _, err := a.Reset(t.Context(), "a", id); !errors.Is(err, countmill.ErrInvalid) || err.Error() != wrong {
			t.Errorf("reset with id %q: got %v, want %q", id, err, wrong)
		}
	}
	if _, err := a.Delete(t.Context(), "__a__"); !errors.Is(err, countmill.ErrInvalid) {
		t.Errorf("delete of a reserved name: got %v", err)
	}
}

// With any outcome of a try, each counted increment is removed once. An increment between tries
// is not lost.
func TestResetIsTriedAgain(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		answers []protocoltest.Answer
		between func(look int, s *store.Sum)
		removed int64
	}{
		"an answer lost, done":     {answers: []protocoltest.Answer{protocoltest.UnknownApplied}, removed: 5},
		"an answer lost, not done": {answers: []protocoltest.Answer{protocoltest.UnknownNotApplied}, removed: 6},
		"no answer":                {answers: []protocoltest.Answer{protocoltest.SlowApplied}, removed: 5},
		"three lost":               {answers: []protocoltest.Answer{protocoltest.UnknownNotApplied, protocoltest.UnknownNotApplied, protocoltest.UnknownApplied}, removed: 7},
		"it looked too long ago": {between: func(look int, s *store.Sum) {
			if look == 1 {
				s.At = s.At.Add(-2 * store.MaxLook)
			}
		}, removed: 6},
		"its counter was swept": {between: func(look int, s *store.Sum) {
			if look == 1 {
				s.ResetAt = s.At
			}
		}, removed: 6},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				a, c := newAdmin(t)
				c.add(t, "a", 5)
				looks := 0
				c.between = func(s *store.Sum) error {
					looks++
					c.add(t, "a", 1)
					if tc.between != nil {
						tc.between(looks, s)
					}
					return nil
				}
				c.On("tx record", protocoltest.Script(tc.answers...))
				done, err := a.Reset(t.Context(), "a", "")
				if err != nil || done.Removed != int128.Of(tc.removed) {
					t.Errorf("got %+v, %v, want %d removed", done, err, tc.removed)
				}
				if got, want := done.Removed.Add(int128.Of(c.total(t, "a"))), int128.Of(int64(5+looks)); got != want {
					t.Errorf("removed and left are %d, want %d", got, want)
				}
			})
		})
	}
}

// A delete whose answer was lost finds no counter at its second try. It existed all the same.
func TestADeleteThatIsTriedAgainSaysThatItExisted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, c := newAdmin(t)
		c.add(t, "a", 5)
		c.On("tx record", protocoltest.Script(protocoltest.UnknownApplied))
		if done, err := a.Delete(t.Context(), "a"); err != nil || !done.Existed || done.Removed != int128.Of(5) {
			t.Errorf("got %+v, %v, want 5 removed of a counter that existed", done, err)
		}
	})
}

func TestResetThatFails(t *testing.T) {
	t.Parallel()
	always := func(a protocoltest.Answer) func(int) protocoltest.Answer {
		return func(int) protocoltest.Answer { return a }
	}
	for name, tc := range map[string]struct {
		prepare func(c *counters)
		want    error
		took    time.Duration
		calls   int
	}{
		"refused":         {func(c *counters) { c.On("tx record", always(protocoltest.Deployment)) }, countmill.ErrUnavailable, 0, 1},
		"no settings":     {func(c *counters) { c.On("check", always(protocoltest.Deployment)) }, countmill.ErrUnavailable, 0, 0},
		"not looked up":   {func(c *counters) { c.On("get shard", always(protocoltest.UnknownNotApplied)) }, countmill.ErrUnavailable, 0, 0},
		"never an answer": {func(c *counters) { c.On("tx record", always(protocoltest.SlowNotApplied)) }, countmill.ErrOutcomeUnknown, 10 * time.Second, 2},
		"changes each time": {func(c *counters) {
			c.between = func(s *store.Sum) error { s.Exists = false; s.At = time.Time{}; return nil }
		}, countmill.ErrUnavailable, 10 * time.Second, 0},
		"lost, then refused": {func(c *counters) {
			c.On("tx record", func(n int) protocoltest.Answer {
				if n == 2 { // the first was before
					return protocoltest.UnknownNotApplied
				}
				return protocoltest.Refused
			})
		}, countmill.ErrOutcomeUnknown, 10 * time.Second, 0},
		"suspended beyond the window": {func(c *counters) {
			c.On("tx record", protocoltest.Script(protocoltest.OK, protocoltest.UnknownApplied))
			looks := 0
			c.between = func(s *store.Sum) error {
				if looks++; looks > 1 {
					c.slept = window + time.Second
					s.At = s.At.Add(c.slept)
				}
				return nil
			}
		}, countmill.ErrOutcomeUnknown, -1, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				a, c := newAdmin(t)
				c.add(t, "a", -5)
				if _, err := a.Reset(t.Context(), "a", ""); err != nil { // a baseline of -5
					t.Fatal(err)
				}
				tc.prepare(c)
				calls, began := c.Calls("tx record"), time.Now()
				_, err := a.Reset(t.Context(), "a", "")
				if !errors.Is(err, tc.want) || errors.Is(err, countmill.ErrUnavailable) != (tc.want == countmill.ErrUnavailable) {
					t.Errorf("got %v, want %v", err, tc.want)
				}
				if took := time.Since(began); took != tc.took && tc.took >= 0 {
					t.Errorf("took %s, want %s", took, tc.took)
				}
				if n := c.Calls("tx record") - calls; tc.calls > 0 && n > tc.calls {
					t.Errorf("%d calls of the store, want at most %d", n, tc.calls)
				}
			})
		})
	}
}

func TestNewNamesEveryProblem(t *testing.T) {
	t.Parallel()
	_, err := admin.New(nil, nil, admin.Config{Timeout: -1, CallTimeout: -1})
	for _, field := range []string{"Timeout", "CallTimeout"} {
		if err == nil || !strings.Contains(err.Error(), field+" must not be negative") {
			t.Errorf("got %v, want one that names %s", err, field)
		}
	}
}

// The marker of a reset stays as long as the database's present settings say.
func TestAResetIsRememberedForTheWindow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, c := newAdmin(t)
		for id, w := range map[string]time.Duration{"1": window, "2": 24 * time.Hour} {
			if _, err := c.SetWindow(t.Context(), w); err != nil {
				t.Fatal(err)
			}
			done, err := a.Reset(t.Context(), "a", id)
			if err != nil {
				t.Fatal(err)
			}
			m, ok := c.Marker(wire.ResetID("a", id))
			if !ok || !m.ExpireAt.Equal(done.At.Add(w+store.MarkerSlack)) {
				t.Errorf("window %s: marker %t expires at %s; want two hours after the window since %s", w, ok, m.ExpireAt, done.At)
			}
		}
	})
}
