package pebble

import (
	"bytes"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/countmill/countmill/store"
)

// The operands of a shard merge to the same bytes in any grouping: the exact sums of the count, of the bucketed
// part, and of the grouped part of each index.
func TestShardsMergeInAnyGrouping(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(7, 8))
	key := newKeyspace("ns").shard(nil, 1, "a", 0)
	sets := [][]int64{nil, nil, {2}, {300}, {2, 300}, {2, 128, 300, 1 << 40}}
	deltas := []int64{0, 1, -1, 5, -5, math.MaxInt64, math.MinInt64}
	for range 3000 {
		var values [][]byte
		var want shardSum
		for range 2 + random.IntN(7) {
			delta, bucketed, set := deltas[random.IntN(len(deltas))], random.IntN(2) == 0, sets[random.IntN(len(sets))]
			values = append(values, appendOperand(nil, delta, bucketed, set))
			sum := shardSum{count: fromInt64(delta)}
			if bucketed {
				sum.bucketed = sum.count
			}
			for _, index := range set {
				sum.grouped = append(sum.grouped, indexSum{index, sum.count})
			}
			want.plus(sum)
		}
		got := mergeAll(t, random, key, values)
		if again := mergeAll(t, random, key, values); !bytes.Equal(got, again) {
			t.Fatalf("two groupings of %x give %x and %x", values, got, again)
		}
		sum, err := decodeShard(got)
		if err != nil || sum.count != want.count || sum.bucketed != want.bucketed || !slices.Equal(sum.grouped, want.grouped) {
			t.Fatalf("the sum of %x: got %+v, %v, want %+v", values, sum, err, want)
		}
		if !bytes.Equal(got, want.encode(nil)) {
			t.Fatalf("%+v is written as %x and as %x", want, got, want.encode(nil))
		}
	}
}

// No operand has the length of another kind of value.
func TestOperandsAreUnambiguous(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(9, 10))
	lengths := make(map[int]bool)
	for range 20_000 {
		var set []int64
		for range 1 + random.IntN(store.MaxGroups) {
			set = append(set, 1+random.Int64N(1<<(1+random.IntN(62))))
		}
		slices.Sort(set)
		set = slices.Compact(set)
		bucketed := random.IntN(2) == 0
		value := appendOperand(nil, 7, bucketed, set)
		lengths[len(value)] = true
		sum, err := decodeShard(value)
		if err != nil || sum.count != fromInt64(7) || (sum.bucketed == fromInt64(7)) != bucketed || len(sum.grouped) != len(set) {
			t.Fatalf("the operand %x of 7 by %d, bucketed: %t, is read as %+v, %v", value, set, bucketed, sum, err)
		}
		for i, g := range sum.grouped {
			if g.index != set[i] || g.sum != sum.count {
				t.Fatalf("the operand %x of 7 by %d is read as %+v", value, set, sum)
			}
		}
	}
	for _, n := range []int{8, bucketedLen, 16, bucketedBoth} {
		if lengths[n] {
			t.Errorf("an operand with indexes has %d bytes, as others have", n)
		}
	}
	if !lengths[17] || !lengths[bucketedBoth+1] {
		t.Errorf("lengths of operands: %v; none was made longer", lengths)
	}
}

// A build that knows no indexes refuses a directory that ever had one: it would fold without them, and it
// cannot read the values of shards.
func TestOlderBuildsRefuseIndexes(t *testing.T) {
	t.Parallel()
	s := open(t, Config{Dir: t.TempDir()})
	kind := func(what string, want int64) {
		t.Helper()
		m, err := getMeta(s.cfg, s.db)
		if err != nil || m.Rules != want {
			t.Errorf("%s: the kind of rules is %d, %v, want %d", what, m.Rules, err, want)
		}
	}
	change := func(c store.RuleChange) store.Settings {
		t.Helper()
		set, err := s.ChangeRules(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		return set
	}
	step := func(step store.IndexStep, x store.Index) store.Settings {
		t.Helper()
		x.Name = "sites"
		return change(store.RuleChange{Index: &store.IndexChange{Step: step, Index: x}})
	}
	kind("at first", 0)
	change(store.RuleChange{Pattern: "a*", Keep: store.Retention{Quarters: 400 * day}})
	kind("with a rule for series", seriesRules)
	set := step(store.CreateIndex, store.Index{Match: "page:{site}:*", Group: "site:{site}"})
	kind("with an index", indexRules)
	step(store.DeleteIndex, store.Index{})
	step(store.RemoveIndex, store.Index{Number: set.Rules.Index("sites").Number})
	change(store.RuleChange{Pattern: "b*", Keep: store.Retention{Quarters: 400 * day}})
	kind("after the index", indexRules)
}

// Folds, changes of rules and the end of the store wait for each other in one order.
func TestRulesChangeBesideFoldsAndTheEnd(t *testing.T) {
	t.Parallel()
	for range 50 {
		s, err := Open(Config{Dir: "d", FS: vfs.NewMem()})
		if err != nil {
			t.Fatal(err)
		}
		var all sync.WaitGroup
		for i := range 4 {
			all.Go(func() {
				for s.enter() == nil {
					s.closing.RUnlock()
					if i == 0 {
						_, _ = s.ChangeRules(t.Context(), store.RuleChange{Pattern: "a*", Remove: true})
						continue
					}
					_, _ = s.Fold(t.Context(), &store.Commit{Adds: []store.ShardDelta{store.NewShardDelta("a", i, 1)}})
				}
			})
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		all.Wait()
	}
}
