package datastore

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	pb "cloud.google.com/go/datastore/apiv1/datastorepb"
	"google.golang.org/grpc"

	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/int128"
	"github.com/countmill/countmill/wire"
)

func changeIndex(t testing.TB, s *Store, step store.IndexStep, x store.Index) *store.Index {
	t.Helper()
	x.Name = "sites"
	set, err := s.ChangeRules(t.Context(), store.RuleChange{Index: &store.IndexChange{Step: step, Index: x}})
	if err != nil {
		t.Fatalf("step %d of index %q: %v", step, x.Name, err)
	}
	return set.Rules.Index(x.Name)
}

func createIndex(t testing.TB, s *Store) *store.Index {
	t.Helper()
	return changeIndex(t, s, store.CreateIndex, store.Index{Match: "page:{site}:*", Group: "site:{site}"})
}

func oneRange(t testing.TB, s *Store, x *store.Index) store.IndexRange {
	t.Helper()
	p := store.IndexRange{Index: x.Number, ID: 1, To: math.MaxUint64}
	if err := s.SwapRanges(t.Context(), nil, []store.IndexRange{p}); err != nil {
		t.Fatal(err)
	}
	return p
}

// tapped opens a database a second time, and counts what meets a commit of a transaction.
func tapped(t *testing.T, cfg Config) (*Store, *tap) {
	p := &tap{}
	cfg.DialOptions = []grpc.DialOption{p.option()}
	return openStore(t, cfg), p
}

// beforeCommit calls do once, when a transaction comes to its commit. It goes on when do has ended, or after
// a second: do may have to wait for the transaction. The result is what to wait for in the end.
func (p *tap) beforeCommit(do func()) (ended <-chan struct{}) {
	done := make(chan struct{})
	begun := false
	p.set(func(_ string, req, _ any) (bool, error) {
		if c, ok := req.(*pb.CommitRequest); !ok || c.GetTransaction() == nil || begun {
			return false, nil
		}
		begun = true
		go func() {
			defer close(done)
			do()
		}()
		select {
		case <-done:
		case <-time.After(time.Second):
		}
		return false, nil
	})
	return done
}

// retried repeats a call while others are in its way.
func retried(t *testing.T, call func() error) error {
	t.Helper()
	var err error
	for range 100 {
		if err = call(); !errors.Is(err, store.ErrContended) && !errors.Is(err, store.ErrNotApplied) {
			return err
		}
	}
	return err
}

// A worker is stopped in the middle of SetRemainders, and another one takes its range and sets other remainders.
func TestAnotherWorkerInTheMiddleOfSetRemainders(t *testing.T) {
	t.Parallel()
	cfg := fresh(t)
	other := openStore(t, cfg)
	s, tap := tapped(t, cfg)
	p := oneRange(t, other, createIndex(t, other))
	taken := p
	taken.Worker, taken.Round = "other", 1
	ended := tap.beforeCommit(func() {
		if err := retried(t, func() error {
			return other.SwapRanges(t.Context(), []store.IndexRange{p}, []store.IndexRange{taken})
		}); err != nil {
			t.Errorf("the other worker takes the range: %v", err)
		}
		if err := retried(t, func() error {
			return other.SetRemainders(t.Context(), &taken, []store.GroupRemainder{{Group: "=site:a", Remainder: int128.Of(8)}})
		}); err != nil {
			t.Errorf("the other worker sets its remainders: %v", err)
		}
	})
	_ = s.SetRemainders(t.Context(), &p, []store.GroupRemainder{{Group: "=site:a", Remainder: int128.Of(5)}})
	<-ended
	remainders, err := other.RemaindersOf(t.Context(), &taken, "", 10)
	if err != nil || len(remainders) != 1 || remainders[0].Remainder != int128.Of(8) {
		t.Errorf("the remainders are %+v, %v, want 8", remainders, err)
	}
	if got := value(t, other, "=site:a", store.RecordKey); got.Remainder != int128.Of(8) {
		t.Errorf("the remainder of the group is %+v, want 8", got)
	}
}

// A worker is stopped in the middle of DropGroups. Meanwhile the index is removed, and another one with the
// same groups begins.
func TestDropGroupsLeavesALaterIndexAlone(t *testing.T) {
	t.Parallel()
	cfg := fresh(t)
	other := openStore(t, cfg)
	s, tap := tapped(t, cfg)
	mustRaise(t, other, "=site:a", 1)
	createIndex(t, other)
	x := changeIndex(t, other, store.DeleteIndex, store.Index{})
	begun := false
	tap.set(func(_ string, req, _ any) (bool, error) {
		if _, ok := req.(*pb.BeginTransactionRequest); !ok || begun {
			return false, nil
		}
		begun = true
		if _, err := other.DropGroups(t.Context(), x, 10); err != nil {
			t.Errorf("the other worker drops the groups: %v", err)
		}
		changeIndex(t, other, store.RemoveIndex, store.Index{Number: x.Number})
		createIndex(t, other)
		mustRaise(t, other, "=site:a", 1)
		mustFold(t, other, &store.Commit{Adds: []store.ShardDelta{add("=site:a", 0, 5)}})
		return false, nil
	})
	if n, err := s.DropGroups(t.Context(), x, 10); !errors.Is(err, store.ErrChanged) || n != 0 {
		t.Errorf("DropGroups of an index that is gone: got %d, %v, want ErrChanged", n, err)
	}
	if got := value(t, other, "=site:a", 0); got.Count != int128.Of(5) || !value(t, other, "=site:a", store.RecordKey).Exists {
		t.Errorf("a group of the later index is %+v, want 5 with a record", got)
	}
}

// An index begins in the middle of a sweep of its counter: the sweep fails, or came first.
func TestIndexInTheMiddleOfASweep(t *testing.T) {
	t.Parallel()
	cfg := fresh(t)
	other := openStore(t, cfg)
	s, tap := tapped(t, cfg)
	mustRaise(t, other, "page:a:1", 1)
	mustFold(t, other, &store.Commit{Adds: []store.ShardDelta{add("page:a:1", 0, 5)}})
	remove(t, other, "page:a:1", 5)
	created, removed := make(chan struct{}), false
	ended := tap.beforeCommit(func() {
		if err := retried(t, func() error {
			_, err := other.ChangeRules(t.Context(), store.RuleChange{Index: &store.IndexChange{
				Step: store.CreateIndex, Index: store.Index{Name: "sites", Match: "page:{site}:*", Group: "site:{site}"},
			}})
			return err
		}); err != nil {
			t.Errorf("the index: %v", err)
		}
		removed = !value(t, other, "page:a:1", 0).Exists // when the index is there
		close(created)
	})
	time.Sleep(2 * time.Millisecond) // deleted before the sweep, by any clock
	_, _ = s.SweepCounters(t.Context(), time.Microsecond)
	<-ended
	<-created
	if gone := !value(t, other, "page:a:1", 0).Exists; gone && !removed {
		t.Error("a sweep removed a counter after the index had begun")
	}
}

// A fold by an index writes no further entity, and look-ups for totals do not read the grouped parts.
func TestIndexesCostTotalsNothing(t *testing.T) {
	t.Parallel()
	s, tap := tapped(t, fresh(t))
	x := createIndex(t, s)
	c := &store.Commit{Adds: []store.ShardDelta{add("page:a:1", 0, 2)}, Grouped: []store.Grouping{{Add: 0, Indexes: []int64{x.Number}}}}
	mustFold(t, s, c)
	if n := rows(t, s, kindShard); n != 1 {
		t.Errorf("the fold wrote %d entities, want 1", n)
	}
	var indexed []string
	if _, err := s.query(t.Context(), nil, span{kind: kindShard}, 10, func(e *pb.Entity) error {
		for name, v := range e.GetProperties() {
			if !v.GetExcludeFromIndexes() {
				indexed = append(indexed, name)
			}
		}
		return nil
	}); err != nil || !slices.Equal(indexed, []string{"counter"}) {
		t.Errorf("indexed properties: %v, %v, want the counter alone", indexed, err)
	}
	looked := 0
	tap.set(func(_ string, req, _ any) (bool, error) {
		if r, ok := req.(*pb.LookupRequest); ok && refOf(r.GetKeys()[0]).kind == kindShard {
			looked++
			if paths := r.GetPropertyMask().GetPaths(); len(paths) == 0 || slices.Contains(paths, groupedBy(x.Number)) {
				t.Errorf("a look-up reads the properties %v, want all without the grouped parts", paths)
			}
		}
		return false, nil
	})
	if v := value(t, s, "page:a:1", 0); v.Count != int128.Of(2) || looked == 0 {
		t.Errorf("after %d look-ups the shard is %+v, want 2", looked, v)
	}
}

// The shards of other counters fill whole queries, and cost no read.
func TestUngroupedPassesOtherCounters(t *testing.T) {
	t.Parallel()
	s, tap := tapped(t, fresh(t))
	var adds []store.ShardDelta
	for i := range 2*maxKeys + 50 {
		adds = append(adds, add(fmt.Sprint("other:", i), 0, 1))
	}
	for i := range 5 {
		adds = append(adds, add(fmt.Sprint("page:a:", i), 0, 1))
	}
	for lot := range slices.Chunk(adds, maxEntities) {
		slices.SortFunc(lot, func(a, b store.ShardDelta) int { return strings.Compare(a.Counter, b.Counter) })
		mustFold(t, s, &store.Commit{Adds: lot})
	}
	x := createIndex(t, s)
	p := store.IndexRange{Index: x.Number, ID: 1, To: math.MaxUint64}
	looked := 0
	tap.set(func(_ string, req, _ any) (bool, error) {
		if r, ok := req.(*pb.LookupRequest); ok && refOf(r.GetKeys()[0]).kind == kindShard {
			looked += len(r.GetKeys())
		}
		return false, nil
	})
	for _, limit := range []int{1, 2, 5, 6} {
		found := make(map[string]int64)
		pages, looks := 0, looked
		for from := ""; pages == 0 || from != ""; pages++ {
			page, err := s.Ungrouped(t.Context(), x, &p, from, limit)
			if err != nil || page.Shards > limit || pages > 20 {
				t.Fatalf("page %d of at most %d: %+v, %v", pages, limit, page, err)
			}
			for _, u := range page.Remainders {
				found[u.Counter] += int64(u.Remainder.Lo)
			}
			from = page.Next
		}
		if len(found) != 5 || looked-looks != 5 {
			t.Errorf("pages of %d: %d counters, and %d look-ups of shards, want 5 and 5", limit, len(found), looked-looks)
		}
	}
}

// A group can have more shards and days than a commit takes.
func TestDropGroupsOfALargeGroup(t *testing.T) {
	t.Parallel()
	s := seriesStore(t, fresh(t))
	createIndex(t, s)
	const group, days = "=site:a", maxEntities + 40
	mustRaise(t, s, group, maxEntities+50)
	mustFold(t, s, &store.Commit{Adds: []store.ShardDelta{add(group, 0, 1), add(group, maxEntities+49, 1)}})
	minutes := run(wire.MinuteOf(now())-days*store.DayMinutes, days, store.DayMinutes)
	for lot := range slices.Chunk(minutes, s.Limits().Ring.Minutes) {
		c := ones(group, lot...)
		c.Archive = wire.MinuteOf(now())
		mustFold(t, s, c)
	}
	x := changeIndex(t, s, store.DeleteIndex, store.Index{})
	calls := 0
	for n := 1; n > 0; calls++ {
		var err error
		if n, err = s.DropGroups(t.Context(), x, 10); err != nil || calls > 10 {
			t.Fatalf("call %d of DropGroups: %d, %v", calls, n, err)
		}
	}
	if a, b, c := rows(t, s, kindCounter), rows(t, s, kindShard), rows(t, s, kindSeries); a+b+c != 0 {
		t.Errorf("after %d calls there are %d records, %d shards and %d days, want none", calls, a, b, c)
	}
}

// A shard that goes in the middle of DropGrouped does not come back without a count.
func TestShardGoesInTheMiddleOfDropGrouped(t *testing.T) {
	t.Parallel()
	cfg := fresh(t)
	other := openStore(t, cfg)
	s, tap := tapped(t, cfg)
	x := createIndex(t, s)
	mustFold(t, s, &store.Commit{
		Adds:    []store.ShardDelta{add("page:a:1", 0, 2), add("page:a:2", 0, 2)},
		Grouped: []store.Grouping{{Add: 0, Indexes: []int64{x.Number}}, {Add: 1, Indexes: []int64{x.Number}}},
	})
	p := store.IndexRange{Index: x.Number, ID: 1, To: math.MaxUint64}
	begun := false
	tap.set(func(_ string, req, _ any) (bool, error) {
		if _, ok := req.(*pb.CommitRequest); ok && !begun {
			begun = true
			r := readerRef(store.Key{Counter: "page:a:1"})
			if err := other.commitLots(t.Context(), []*pb.Mutation{{Operation: &pb.Mutation_Delete{Delete: other.key(r)}}}); err != nil {
				t.Error(err)
			}
		}
		return false, nil
	})
	if _, err := s.DropGrouped(t.Context(), x, &p, "", 10); err == nil || errors.Is(err, store.ErrDeployment) {
		t.Errorf("DropGrouped of a shard that is gone: got %v, want an error that another try solves", err)
	}
	if _, err := s.DropGrouped(t.Context(), x, &p, "", 10); err != nil {
		t.Errorf("DropGrouped again: %v", err)
	}
	if n := rows(t, s, kindShard); n != 1 {
		t.Errorf("%d shards, want 1", n)
	}
}

// Builds that know no indexes refuse rules with one, and no others.
func TestOlderBuildsRefuseIndexes(t *testing.T) {
	t.Parallel()
	x, err := store.ParseIndex("sites", "page:{site}:*", "site:{site}")
	if err != nil {
		t.Fatal(err)
	}
	series := []store.Rule{{Pattern: "a*", Keep: store.Retention{Quarters: 24 * time.Hour}}}
	for _, indexes := range [][]store.Index{nil, {x}} {
		var old struct {
			Series []struct {
				Pattern, Keep string
				Since, Ended  time.Time
			}
		}
		d := json.NewDecoder(strings.NewReader(encodeRules(&store.Rules{Series: series, Indexes: indexes}).GetStringValue()))
		d.DisallowUnknownFields()
		if err := d.Decode(&old); (err != nil) != (indexes != nil) {
			t.Errorf("rules with %d indexes, read by a build that knows none: %v", len(indexes), err)
		}
	}
}

// The sums of remainders are exact within int64, also after sums beyond it.
func TestRemainderParts(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		remainders []int64
		want       int64
		overflow   bool
	}{
		{[]int64{0}, 0, false}, {[]int64{-1, -1, 3}, 1, false}, {[]int64{1<<32 - 1, 1}, 1 << 32, false},
		{[]int64{math.MaxInt64 - 1, math.MaxInt64 - 1, 5 - math.MaxInt64}, 0, true},
		{[]int64{math.MaxInt64 - 1, math.MaxInt64 - 1, 2 - math.MaxInt64, -7}, math.MaxInt64 - 7, false},
		{[]int64{math.MinInt64 + 1, math.MinInt64 + 1, math.MaxInt64 - 1}, 0, true},
		{[]int64{math.MinInt64 + 1}, math.MinInt64 + 1, false}, {[]int64{math.MaxInt64 - 1}, math.MaxInt64 - 1, false},
		{[]int64{math.MaxInt64 - 1, 1}, 0, true}, {[]int64{math.MinInt64, math.MaxInt64}, 0, true},
		{[]int64{math.MinInt64, 1 - math.MaxInt64, 1 - math.MaxInt64}, 0, true},
	} {
		var sum remainderParts
		for _, r := range tt.remainders {
			sum = sum.minus(remainderParts{}.minus(partsOf(r)))
		}
		if got, overflow := sum.total(); got != tt.want || overflow != tt.overflow {
			t.Errorf("the sum of %d is %d, %t; want %d, %t", tt.remainders, got, overflow, tt.want, tt.overflow)
		}
	}
	most := remainderParts{}
	for range store.MaxRanges {
		most = most.minus(remainderParts{}.minus(partsOf(math.MaxInt64)))
	}
	if _, overflow := most.total(); !overflow || saturated(most.high) || most.high < 0 {
		t.Errorf("the remainders of all ranges at an end: %+v, an overflow: %t", most, overflow)
	}
}
