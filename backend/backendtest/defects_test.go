package backendtest_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path"
	"strings"
	"testing"
	"time"

	"github.com/countmill/countmill/aggregator"
	"github.com/countmill/countmill/backend/backendtest"
	"github.com/countmill/countmill/backend/backendtest/fakestore"
	"github.com/countmill/countmill/reader"
	"github.com/countmill/countmill/wire"
)

const defectEnv = "COUNTMILL_BACKENDTEST_DEFECT"

// defects are stores that are wrong in one way each, with the test of the suite that
// has to see it.
var defects = map[string]struct {
	caught string
	make   func(s *fakestore.Store) backendtest.Store
	opts   fakestore.Options
}{
	"reads unpinned":      {caught: "ViewIsPinned", opts: fakestore.Options{Unpinned: true}},
	"reads half a commit": {caught: "CommitIsAtomicForReaders", make: folds(splitAdds), opts: slow},
	"applies beside an existing marker": {caught: "MarkerExistsAppliesNothing", make: folds(func(ctx context.Context, s *fakestore.Store, c *aggregator.Commit) (time.Time, error) {
		at, err := s.Fold(ctx, c)
		if errors.Is(err, aggregator.ErrMarkerExists) && len(c.Markers) > 1 {
			_, _ = s.Fold(ctx, &aggregator.Commit{Adds: c.Adds})
		}
		return at, err
	})},
	"checks markers, then acts": {caught: "OneOfManyWins", make: folds(checkThenAct), opts: slow},
	"loses an add in a hundred": {caught: "ConcurrentFoldsSum", make: loseSome},
	"takes one less than its limit": {caught: "FoldTakesLimits", make: folds(func(ctx context.Context, s *fakestore.Store, c *aggregator.Commit) (time.Time, error) {
		if c.Entities() >= s.Limits().Entities {
			return time.Time{}, aggregator.ErrRefused
		}
		return s.Fold(ctx, c)
	})},
	"cleans paths":             {caught: "FoldTakesAnyName", make: folds(cleanNames)},
	"ignores the context":      {caught: "CancelledContext", make: folds(ignoreContext)},
	"keeps the caller's slice": {caught: "FoldKeepsNothing", make: func(s *fakestore.Store) backendtest.Store { return &lazy{Store: s} }},
	"forgets microseconds":     {caught: "AppliedFindsWhatWasWritten", make: func(s *fakestore.Store) backendtest.Store { return coarse{s} }},
	"lowers records":           {caught: "RaiseNeverLowers", make: func(s *fakestore.Store) backendtest.Store { return &lowering{s, map[string]int{}} }},
	"raises before it folds":   {caught: "FoldRaises", make: folds(raiseFirst), opts: fakestore.Options{RaisesInFold: true}},
	"folds and does not raise": {caught: "FoldRaises", make: folds(foldOnly), opts: fakestore.Options{RaisesInFold: true}},
	"shows overflows":          {caught: "LookupReportsOverflow", make: views(func(v *odd) { v.hideOverflow = true })},
	"claims to be newer":       {caught: "ReadTimeCoversFolds", make: views(func(v *odd) { v.shift = time.Hour })},
	"claims to be older":       {caught: "ReadTimeCoversFolds", make: views(func(v *odd) { v.shift = -time.Hour })},
	"lists one too many":       {caught: "ListPages", make: views(func(v *odd) { v.more = 1 })},
	"buries anew":              {caught: "BuryIsIdempotent", make: func(s *fakestore.Store) backendtest.Store { return &gravedigger{Store: s} }},
	"discards nothing":         {caught: "DiscardRemoves", make: func(s *fakestore.Store) backendtest.Store { return keeping{s} }},
	"discards all before":      {caught: "DiscardRemoves", make: func(s *fakestore.Store) backendtest.Store { return purging{s} }},
	"is empty when reopened":   {caught: "Reopen"},
}

// slow gives a defect between two calls the time that it has in a real store.
var slow = fakestore.Options{Latency: 50 * time.Microsecond}

// TestSuiteSeesDefects runs the suite on each defective store in another process, where
// it has to fail.
func TestSuiteSeesDefects(t *testing.T) {
	t.Parallel()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for name, defect := range defects {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd := exec.CommandContext(t.Context(), exe, "-test.run", "^TestDefectiveStore$/^"+defect.caught+"$")
			cmd.Env = append(os.Environ(), defectEnv+"="+name)
			out, err := cmd.CombinedOutput()
			if err == nil || !strings.Contains(string(out), "--- FAIL: TestDefectiveStore/"+defect.caught) {
				t.Errorf("%s does not see a store that %s (%v):\n%s", defect.caught, name, err, out)
			}
		})
	}
}

func TestDefectiveStore(t *testing.T) {
	name := os.Getenv(defectEnv)
	if name == "" {
		t.Skip("runs in the other process of TestSuiteSeesDefects")
	}
	defect := defects[name]
	open := func(*testing.T) backendtest.Store {
		s := fakestore.New(defect.opts)
		if defect.make == nil {
			return s
		}
		return defect.make(s)
	}
	backendtest.RunStore(t, open, backendtest.Slow(), backendtest.Durable(func(t *testing.T, _ backendtest.Store) backendtest.Store { return open(t) }))
}

type foldFunc func(ctx context.Context, s *fakestore.Store, c *aggregator.Commit) (time.Time, error)

type folding struct {
	*fakestore.Store
	fold foldFunc
}

func (f folding) Fold(ctx context.Context, c *aggregator.Commit) (time.Time, error) {
	return f.fold(ctx, f.Store, c)
}

func folds(fold foldFunc) func(*fakestore.Store) backendtest.Store {
	return func(s *fakestore.Store) backendtest.Store { return folding{s, fold} }
}

func splitAdds(ctx context.Context, s *fakestore.Store, c *aggregator.Commit) (time.Time, error) {
	if len(c.Adds) < 2 {
		return s.Fold(ctx, c)
	}
	if at, err := s.Fold(ctx, &aggregator.Commit{Markers: c.Markers, Adds: c.Adds[:1]}); err != nil {
		return at, err
	}
	return s.Fold(ctx, &aggregator.Commit{Adds: c.Adds[1:]})
}

func raiseFirst(ctx context.Context, s *fakestore.Store, c *aggregator.Commit) (time.Time, error) {
	if err := s.Raise(ctx, c.Raises); err != nil {
		return time.Time{}, err
	}
	return s.Fold(ctx, c)
}

func foldOnly(ctx context.Context, s *fakestore.Store, c *aggregator.Commit) (time.Time, error) {
	return s.Fold(ctx, &aggregator.Commit{Markers: c.Markers, Adds: c.Adds})
}

func checkThenAct(ctx context.Context, s *fakestore.Store, c *aggregator.Commit) (time.Time, error) {
	for _, m := range c.Markers {
		if found, err := s.Applied(ctx, []wire.PartID{m.ID}); err != nil || len(found) > 0 {
			return time.Time{}, errors.Join(err, aggregator.ErrMarkerExists)
		}
	}
	at, err := s.Fold(ctx, &aggregator.Commit{Adds: c.Adds})
	if len(c.Markers) > 0 {
		_, _ = s.Fold(ctx, &aggregator.Commit{Markers: c.Markers})
	}
	return at, err
}

func loseSome(s *fakestore.Store) backendtest.Store {
	s.OnFold(func(n int, _ *aggregator.Commit) fakestore.Answer {
		if n%100 == 0 {
			return fakestore.NotCounted
		}
		return fakestore.OK
	})
	return folding{s, func(ctx context.Context, s *fakestore.Store, c *aggregator.Commit) (time.Time, error) {
		at, err := s.Fold(ctx, c)
		if errors.Is(err, aggregator.ErrNotCounted) {
			return at, nil
		}
		return at, err
	}}
}

func cleanNames(ctx context.Context, s *fakestore.Store, c *aggregator.Commit) (time.Time, error) {
	for _, a := range c.Adds {
		a.Counter = path.Clean(a.Counter)
		a.Hash = wire.ShardHash(a.Counter, a.Shard)
		if _, err := s.Fold(ctx, &aggregator.Commit{Adds: []aggregator.Add{a}}); err != nil {
			return time.Time{}, err
		}
	}
	return time.Time{}, nil
}

func ignoreContext(ctx context.Context, s *fakestore.Store, c *aggregator.Commit) (time.Time, error) {
	return s.Fold(context.WithoutCancel(ctx), c)
}

// lazy applies a commit when it gets the next one.
type lazy struct {
	*fakestore.Store
	last *aggregator.Commit
}

func (l *lazy) Fold(_ context.Context, c *aggregator.Commit) (time.Time, error) {
	l.last = c
	return time.Time{}, nil
}

func (l *lazy) View() reader.View {
	_, _ = l.Store.Fold(context.Background(), l.last)
	return l.Store.View()
}

type coarse struct{ *fakestore.Store }

func (c coarse) Applied(ctx context.Context, ids []wire.PartID) ([]aggregator.Marker, error) {
	found, err := c.Store.Applied(ctx, ids)
	for i := range found {
		found[i].ExpireAt = found[i].ExpireAt.Truncate(time.Millisecond)
	}
	return found, err
}

type lowering struct {
	*fakestore.Store
	last map[string]int
}

func (l *lowering) Raise(ctx context.Context, raises []aggregator.Raise) error {
	for _, r := range raises {
		l.last[r.Counter] = r.Shards
	}
	return l.Store.Raise(ctx, raises)
}

func (l *lowering) Shards(_ context.Context, counters []string) ([]int, error) {
	shards := make([]int, len(counters))
	for i, c := range counters {
		shards[i] = l.last[c]
	}
	return shards, nil
}

// An odd view is wrong in one way.
type odd struct {
	reader.View
	hideOverflow bool
	shift        time.Duration
	more         int
}

type oddViews struct {
	*fakestore.Store
	spoil func(*odd)
}

func views(spoil func(*odd)) func(*fakestore.Store) backendtest.Store {
	return func(s *fakestore.Store) backendtest.Store { return oddViews{s, spoil} }
}

func (s oddViews) View() reader.View {
	v := &odd{View: s.Store.View()}
	s.spoil(v)
	return v
}

func (v *odd) Lookup(ctx context.Context, keys []reader.Key) ([]reader.Value, error) {
	values, err := v.View.Lookup(ctx, keys)
	for i := range values {
		values[i].Overflow = values[i].Overflow && !v.hideOverflow
	}
	return values, err
}

func (v *odd) List(ctx context.Context, prefix, after string, limit int) ([]reader.Record, error) {
	return v.View.List(ctx, prefix, after, limit+v.more)
}

func (v *odd) ReadTime() time.Time { return v.View.ReadTime().Add(v.shift) }

type gravedigger struct {
	*fakestore.Store
	dug int
}

func (g *gravedigger) Bury(ctx context.Context, letters []aggregator.Dead) error {
	g.dug++
	for _, d := range letters {
		d.Key += strings.Repeat("+", g.dug)
		if err := g.Store.Bury(ctx, []aggregator.Dead{d}); err != nil {
			return err
		}
	}
	return nil
}

type keeping struct{ *fakestore.Store }

func (keeping) Discard(ctx context.Context, _ []string) error { return ctx.Err() }

type purging struct{ *fakestore.Store }

func (p purging) Discard(ctx context.Context, keys []string) error {
	for _, d := range p.Letters() {
		for _, key := range keys {
			if d.Key <= key {
				keys = append(keys, d.Key)
				break
			}
		}
	}
	return p.Store.Discard(ctx, keys)
}
