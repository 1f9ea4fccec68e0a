package aggregator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/wire"
)

// A cannedStore has an answer for each call of one attempt, and records the calls.
type cannedStore struct {
	nullStore
	marked          []store.Marker // what Applied finds
	foundShards     int            // answer of Shards; 0 if there is no record
	applied, shards error
	raise, fold     error
	at              time.Time // the store's time of a fold
	takes           time.Duration
	called          []string
	contexts        []context.Context
	unbounded       []string // calls without a deadline
}

func (s *cannedStore) note(ctx context.Context, call string) {
	s.called, s.contexts = append(s.called, call), append(s.contexts, ctx)
	if _, ok := ctx.Deadline(); !ok {
		s.unbounded = append(s.unbounded, call)
	}
}

func (s *cannedStore) Fold(ctx context.Context, c *store.Commit) (store.CommitResult, error) {
	s.note(ctx, fmt.Sprintf("fold %d+%d", len(c.Markers), len(c.Adds)))
	time.Sleep(s.takes)
	return store.CommitResult{At: s.at}, s.fold
}

func (s *cannedStore) Applied(ctx context.Context, ids []wire.PartID) (found []store.Marker, err error) {
	s.note(ctx, fmt.Sprintf("applied %d", len(ids)))
	for _, m := range s.marked {
		if slices.Contains(ids, m.ID) {
			found = append(found, m)
		}
	}
	return found, s.applied
}

func (s *cannedStore) Shards(ctx context.Context, counters []string) ([]int, error) {
	s.note(ctx, fmt.Sprintf("shards %d", len(counters)))
	return slices.Repeat([]int{s.foundShards}, len(counters)), s.shards
}

func (s *cannedStore) Grow(ctx context.Context, growths []store.Growth) error {
	s.note(ctx, fmt.Sprintf("grow %d", len(growths)))
	return s.raise
}

// tried is the result of one attempt.
type tried struct {
	Verdict                              verdict
	Applied, Duplicates, Conflicts, Rest string
	Work                                 work
	Called                               []string
}

// TestAttempt checks the table of doc.go, one attempt at a time: the state of each part after it,
// the verdict about the rest, and the cost.
func TestAttempt(t *testing.T) {
	t.Parallel()
	const ours, theirs = 7, 8 // fold ids
	away, deployment := errors.New("no answer"), fmt.Errorf("no rights: %w", store.ErrDeployment)
	marked := func(id byte, fold uint64, f wire.Fingerprint) store.Marker {
		return store.Marker{ID: wire.PartID{id}, Fold: fold, Fingerprint: f}
	}
	for name, c := range map[string]struct {
		store    cannedStore
		lookup   bool
		unmarked string // parts without a marker
		busy     bool   // another commit has the only shard of a
		cancel   bool   // part 2 undoes part 1
		huge     bool   // the sum of 1 and 2 is beyond int64
		want     tried
	}{
		"applied": {
			store: cannedStore{foundShards: 3},
			want: tried{Applied: "12", Work: work{commits: 1, written: 4, read: 2, entries: 3},
				Called: []string{"shards 2", "fold 2+2"}},
		},
		"applied, new counters": {
			want: tried{Applied: "12", Work: work{commits: 1, written: 6, read: 2, raised: 2, entries: 3},
				Called: []string{"shards 2", "grow 2", "fold 2+2"}},
		},
		"applied, one without a marker": {
			unmarked: "2",
			want: tried{Applied: "12", Work: work{commits: 1, written: 5, read: 2, raised: 2, entries: 3},
				Called: []string{"shards 2", "grow 2", "fold 1+2"}},
		},
		"nothing to look up": {
			lookup: true, unmarked: "12",
			want: tried{Applied: "12", Work: work{commits: 1, written: 4, read: 2, raised: 2, entries: 3},
				Called: []string{"shards 2", "grow 2", "fold 0+2"}},
		},
		"nothing to commit": {
			unmarked: "12", cancel: true,
			want: tried{Applied: "12"},
		},
		"a look-up finds ours and theirs": {
			store: cannedStore{marked: []store.Marker{marked(1, ours, 1), marked(2, theirs, 2)}}, lookup: true,
			want: tried{Applied: "1", Duplicates: "2", Work: work{read: 2, entries: 2}, Called: []string{"applied 2"}},
		},
		"a look-up finds another's content": {
			store: cannedStore{marked: []store.Marker{marked(1, ours, 9)}}, lookup: true,
			want: tried{Applied: "2", Conflicts: "1", Work: work{commits: 1, written: 3, read: 3, raised: 1, entries: 1},
				Called: []string{"applied 2", "shards 1", "grow 1", "fold 1+1"}},
		},
		"a look-up goes wrong": {
			store: cannedStore{applied: away}, lookup: true,
			want: tried{Verdict: unreached, Rest: "12", Work: work{read: 2}, Called: []string{"applied 2"}},
		},
		"a look-up is not allowed": {
			store: cannedStore{applied: deployment}, lookup: true,
			want: tried{Verdict: stuck, Rest: "12", Work: work{read: 2}, Called: []string{"applied 2"}},
		},
		"a sum beyond int64": {
			huge: true,
			want: tried{Applied: "12", Work: work{commits: 1, written: 6, read: 2, raised: 2, entries: 3},
				Called: []string{"shards 2", "grow 2", "fold 2+2"}},
		},
		"records cannot be read": {
			store: cannedStore{shards: away},
			want:  tried{Verdict: unreached, Rest: "12", Work: work{read: 2}, Called: []string{"shards 2"}},
		},
		"records cannot be written": {
			store: cannedStore{raise: deployment},
			want:  tried{Verdict: stuck, Rest: "12", Work: work{read: 2}, Called: []string{"shards 2", "grow 2"}},
		},
		"its shard is taken": {
			busy: true,
			want: tried{Verdict: blocked, Rest: "12", Work: work{read: 2, written: 2, raised: 2}, Called: []string{"shards 2", "grow 2"}},
		},
		"no answer": {
			store: cannedStore{foundShards: 1, fold: away},
			want:  tried{Verdict: unknown, Rest: "12", Work: work{commits: 1, read: 2}, Called: []string{"shards 2", "fold 2+2"}},
		},
		"refused": {
			store: cannedStore{foundShards: 1, fold: store.ErrRefused},
			want:  tried{Verdict: refused, Rest: "12", Work: work{commits: 1, read: 2}, Called: []string{"shards 2", "fold 2+2"}},
		},
		"by older rules": {
			store: cannedStore{foundShards: 1, fold: store.ErrOutdated},
			want:  tried{Verdict: superseded, Rest: "12", Work: work{commits: 1, read: 2}, Called: []string{"shards 2", "fold 2+2"}},
		},
		"the deployment": {
			store: cannedStore{foundShards: 1, fold: deployment},
			want:  tried{Verdict: stuck, Rest: "12", Work: work{commits: 1, read: 2}, Called: []string{"shards 2", "fold 2+2"}},
		},
		"not counted": {
			store: cannedStore{foundShards: 1, fold: store.ErrNotCounted},
			want:  tried{Verdict: ignored, Rest: "12", Work: work{commits: 1, read: 2}, Called: []string{"shards 2", "fold 2+2"}},
		},
		"a marker is there, and found": {
			store: cannedStore{foundShards: 1, fold: store.ErrMarkerExists, marked: []store.Marker{marked(2, theirs, 2)}},
			want: tried{Verdict: again, Duplicates: "2", Rest: "1", Work: work{commits: 1, read: 4},
				Called: []string{"shards 2", "fold 2+2", "applied 2"}},
		},
		"all markers are there": {
			store: cannedStore{foundShards: 1, fold: store.ErrMarkerExists, marked: []store.Marker{marked(1, theirs, 1), marked(2, ours, 2)}},
			want: tried{Applied: "2", Duplicates: "1", Work: work{commits: 1, read: 4, entries: 1},
				Called: []string{"shards 2", "fold 2+2", "applied 2"}},
		},
		"a marker is there, and not found": {
			store: cannedStore{foundShards: 1, fold: store.ErrMarkerExists},
			want: tried{Verdict: alone, Rest: "12", Work: work{commits: 1, read: 4},
				Called: []string{"shards 2", "fold 2+2", "applied 2"}},
		},
		"a marker is there, and the look-up goes wrong": {
			store: cannedStore{foundShards: 1, fold: store.ErrMarkerExists, applied: away},
			want: tried{Verdict: unreached, Rest: "12", Work: work{commits: 1, read: 4},
				Called: []string{"shards 2", "fold 2+2", "applied 2"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			st := c.store
			st.limits = store.Limits{Keys: 10, Commits: 2, Shards: 1}
			a, err := New(make(chanBus), &st, Config{})
			if err != nil {
				t.Fatal(err)
			}
			a.settings.Store(&snapshot{})
			one := &part{marked: true, fold: ours, fingerprint: 1, from: time.Now(), Part: wire.Part{
				ID: wire.PartID{1}, Entries: []wire.Entry{{Counter: "a", Delta: 1}, {Counter: "b", Delta: 2}}}}
			two := &part{marked: true, fold: ours, fingerprint: 2, from: time.Now(), Part: wire.Part{
				ID: wire.PartID{2}, Entries: []wire.Entry{{Counter: "a", Delta: 3}}}}
			wire.SortEntries(one.Entries)
			switch {
			case c.cancel:
				one.Entries, two.Entries = []wire.Entry{{Counter: "a", Delta: 1}}, []wire.Entry{{Counter: "a", Delta: -1}}
			case c.huge:
				two.Entries = []wire.Entry{{Counter: "a", Delta: 1<<63 - 1}}
			}
			for _, r := range c.unmarked {
				[]*part{one, two}[r-'1'].marked = false
			}
			if c.busy {
				a.inflight.policy.Pick("a", 1, time.Now())
			}
			o := a.attempt(&job{parts: []*part{one, two}, lookup: c.lookup})
			var conflicting []*part
			for _, c := range o.conflicts {
				conflicting = append(conflicting, c.part)
			}
			c.want.Work.increments = int64(c.want.Work.entries) // no part says that it has more
			got := tried{o.verdict, numbersOf(o.applied), numbersOf(o.duplicates), numbersOf(conflicting), numbersOf(o.rest), o.work, st.called}
			if diff := cmp.Diff(c.want, got, cmp.AllowUnexported(work{})); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if needs := got.Verdict != settled && got.Verdict != split && got.Verdict != blocked; needs && o.err == nil {
				t.Errorf("verdict %d without an error", got.Verdict)
			}
			if st.unbounded != nil {
				t.Errorf("without a deadline: %v", st.unbounded)
			}
			for i, ctx := range st.contexts {
				if ctx.Err() == nil {
					t.Errorf("the timer of %q still runs after the attempt", st.called[i])
				}
			}
			for _, counter := range []string{"a", "b"} {
				if _, free := a.inflight.acquire(toShard0(counter), []int{1}); free == (c.busy && counter == "a") {
					t.Errorf("the shard of %s is free after the attempt: %t", counter, free)
				}
			}
		})
	}
}

// The parts of increments of other programs have ids like others: the journal has them.
func TestPartsOfOtherProgramsHaveIDs(t *testing.T) {
	t.Parallel()
	var added []store.Added
	for i := range 100 * wire.MaxEntries {
		added = append(added, store.Added{ID: int64(i), Counter: fmt.Sprint(i), Delta: 1, At: time.Now()})
	}
	seen := make(map[wire.PartID]bool)
	for _, p := range newTestAggregator(t).jobOf(added).parts {
		if seen[p.ID] || p.ID.Class() != wire.AnonymousClass {
			t.Errorf("the id %s is of class %d, or was there before", p.ID, p.ID.Class())
		}
		seen[p.ID] = true
	}
	if len(seen) < 100 {
		t.Errorf("%d parts, want 100", len(seen))
	}
}

func numbersOf(parts []*part) (s string) {
	for _, p := range parts {
		s += fmt.Sprint(p.ID[0])
	}
	return s
}

// A commit's answer has the store's time, within the duration of the call.
func TestACommitTeachesTheStoresTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st := &cannedStore{nullStore: nullStore{store.Limits{Keys: 10, Commits: 2, Shards: 1}}, at: time.Now().Add(time.Hour), takes: 2 * time.Second}
		var took []time.Duration
		a, err := New(make(chanBus), st, Config{OnFold: func(d time.Duration) { took = append(took, d) }})
		if err != nil {
			t.Fatal(err)
		}
		a.settings.Store(&snapshot{})
		p := &part{marked: true, from: time.Now(), Part: wire.Part{Entries: []wire.Entry{{Counter: "a", Delta: 1}}}}
		a.attempt(&job{parts: []*part{p}})
		if ahead, want := time.Until(a.clock.Now()), time.Hour-time.Second; ahead != want { // in the middle of the call
			t.Errorf("the aggregator takes the store's clock to be %s ahead, want %s", ahead, want)
		}
		if !slices.Equal(took, []time.Duration{2 * time.Second}) {
			t.Errorf("OnFold got %v, want 2 s", took)
		}
	})
}
