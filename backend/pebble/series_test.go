package pebble

import (
	"bytes"
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/countmill/countmill/store"
	sums "github.com/countmill/countmill/store/int128"
	"github.com/countmill/countmill/wire"
)

func TestVarintsOf128Bits(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(7, 8))
	numbers := []int128{{}, {0, 1}, {-1, math.MaxUint64}, {math.MaxInt64, math.MaxUint64}, {math.MinInt64, 0}, {0, 1 << 63}, {-1, 1 << 63}, {1, 0}, {0, 1 << 56}, {0, 1<<56 - 1}}
	for range 2000 {
		numbers = append(numbers, int128{int64(random.Uint64()) >> random.IntN(64), random.Uint64() >> random.IntN(64)})
	}
	for _, want := range numbers {
		text := appendInt128(nil, want)
		if got, n := readInt128(append(text, 0xff)); got != want || n != len(text) {
			t.Errorf("%v is written %x and read as %v of %d bytes", want, text, got, n)
		}
		if got, n := readInt128(text[:len(text)-1]); n != 0 {
			t.Errorf("%x, cut off, is read as %v", text, got)
		}
	}
	if small := appendInt128(nil, fromInt64(-64)); len(small) != 1 {
		t.Errorf("-64 takes %d bytes", len(small))
	}
}

// The merged bytes are those of the exact sums, however Pebble groups the operands.
func TestSeriesMergeInAnyGrouping(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(9, 10))
	key := newKeyspace("ns").series(nil, 20000, 1, "a")
	for range 1000 {
		var values [][]byte
		want := make(map[slot]*big.Int)
		for range 1 + random.IntN(8) {
			m := &seriesMerger{}
			for range random.IntN(4) {
				at, delta := slot(random.IntN(int(slotsEnd))), fromInt64(int64(random.Uint64()))
				if random.IntN(2) == 0 {
					at, delta = slot(random.IntN(3)), fromInt64(int64(random.IntN(3))-1)
				}
				m.add(slotSum{at, delta})
				if want[at] == nil {
					want[at] = new(big.Int)
				}
				want[at].Add(want[at], delta.big())
			}
			values = append(values, encodeSeries(nil, m.pairs))
		}
		got := mergeAll(t, random, key, values)
		if again := mergeAll(t, random, key, values); !bytes.Equal(got, again) {
			t.Fatalf("two groupings of %x give %x and %x", values, got, again)
		}
		pairs, err := decodeSeries(got)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range pairs {
			if want[p.slot] == nil || want[p.slot].Cmp(p.sum.big()) != 0 {
				t.Fatalf("%x: slot %d is %s, want %s", values, p.slot, p.sum.big(), want[p.slot])
			}
			delete(want, p.slot)
		}
		for at, left := range want {
			if left.Sign() != 0 {
				t.Fatalf("%x: slot %d is missing, want %s", values, at, left)
			}
		}
	}
}

func TestSeriesThatNobodyWrote(t *testing.T) {
	t.Parallel()
	for _, value := range [][]byte{{1}, {0x80}, {5, 2, 0, 2}, encodeSeries(nil, []slotSum{{slotsEnd, fromInt64(1)}}), {1, 0x80}} {
		if pairs, err := decodeSeries(value); err == nil {
			t.Errorf("%x is read as %v", value, pairs)
		}
	}
	for _, value := range [][]byte{make([]byte, 10), append(make([]byte, 8), 1), append(make([]byte, 32), 1)} {
		if s, err := decodeShard(value); err == nil {
			t.Errorf("shard %x is read as %v", value, s)
		}
	}
}

// A day is swept once for each promise that ends. A late minute waits for the next one.
func TestADayIsSweptOncePerPromise(t *testing.T) {
	t.Parallel()
	c := newTestClock()
	s := open(t, c.config(Config{Dir: t.TempDir(), Window: day}))
	if _, err := s.ChangeRules(t.Context(), store.RuleChange{Pattern: "*", Keep: store.Retention{Minutes: time.Hour, Quarters: 30 * day}}); err != nil {
		t.Fatal(err)
	}
	m := wire.MinuteOf(clockStart) / store.DayMinutes * store.DayMinutes
	count := func(minute wire.Minute) {
		t.Helper()
		commit := &store.Commit{Adds: []store.ShardDelta{store.NewShardDelta("a", 0, 1)}, Buckets: []store.BucketDelta{{Minute: minute, Delta: 1}}}
		if _, err := s.Fold(t.Context(), commit); err != nil {
			t.Fatal(err)
		}
	}
	want := func(what string, want ...store.Bucket) {
		t.Helper()
		if err := s.SweepSeries(t.Context()); err != nil {
			t.Fatal(err)
		}
		v := s.View()
		defer v.Close()
		got, err := v.Series(t.Context(), []store.Record{{Counter: "a"}}, 0, m+10*store.DayMinutes)
		if diff := cmp.Diff([][]store.Bucket{want}, got); err != nil || diff != "" {
			t.Errorf("%s (%v, -want +got):\n%s", what, err, diff)
		}
	}
	quarter := func(sum int64) store.Bucket { return store.Bucket{Minute: m, Quarter: true, Sum: sums.Of(sum)} }
	minute := store.Bucket{Minute: m + 2, Sum: sums.Of(1)}
	count(m + 2)
	want("on the same day", minute)
	c.set(m.Time().Add(day + 2*time.Hour - time.Minute))
	want("before the promise is over", minute)
	c.set(m.Time().Add(day + 2*time.Hour + time.Minute))
	want("after it", quarter(1))
	count(m + 2)
	want("a late minute", quarter(1), minute)
	if _, err := s.ChangeRules(t.Context(), store.RuleChange{Pattern: "*", Keep: store.Retention{Quarters: 30 * day}}); err != nil {
		t.Fatal(err)
	}
	want("with another promise", quarter(2))
	c.set(m.Time().Add(31*day + 2*time.Hour))
	want("after the last promise")
	if keys, err := s.keysFrom(s.keys.kind(nil, kindStage), after(s.keys.kind(nil, kindStage))); err != nil || len(keys) != 0 {
		t.Errorf("%d days without a series are remembered as swept, %v", len(keys), err)
	}
}

// A rule is made to keep longer after a sweep has begun with the rule before. The sweep goes by the longer one.
func TestARuleKeepsLongerDuringASweep(t *testing.T) {
	t.Parallel()
	s, err := Open(Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	keep := func(quarters time.Duration) store.Settings {
		t.Helper()
		set, err := s.ChangeRules(t.Context(), store.RuleChange{Pattern: "a", Keep: store.Retention{Quarters: quarters}})
		if err != nil {
			t.Fatal(err)
		}
		return set
	}
	before := keep(24 * time.Hour)
	now := time.Now()
	m := wire.MinuteOf(now.Add(-5 * 24 * time.Hour))
	c := &store.Commit{
		Rules: before.Version, Adds: []store.ShardDelta{store.NewShardDelta("a", 0, 3)}, Growths: []store.Growth{{Counter: "a", Shards: 1}},
		Buckets: []store.BucketDelta{{Minute: m, Delta: 3}},
	}
	if _, err := s.Fold(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	keep(400 * 24 * time.Hour)
	if err := s.sweepDay(t.Context(), dayOf(m), before.Rules, now); err != nil {
		t.Fatal(err)
	}
	v := s.View()
	defer v.Close()
	got, err := v.Series(t.Context(), []store.Record{{Counter: "a"}}, 0, wire.MinuteOf(wire.MaxTime))
	if err != nil || len(got[0]) != 1 || got[0][0].Sum != sums.Of(3) {
		t.Errorf("after the sweep: %+v, %v; want the 3 that the rule keeps for 400 days", got, err)
	}
}
