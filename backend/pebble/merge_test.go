package pebble

import (
	"bytes"
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/countmill/countmill/store"
	sums "github.com/countmill/countmill/store/int128"

	pebbledb "github.com/cockroachdb/pebble/v2"

	"github.com/countmill/countmill/wire"
)

func (a int128) big() *big.Int {
	v := new(big.Int).Lsh(big.NewInt(a.hi), 64)
	return v.Add(v, new(big.Int).SetUint64(a.lo))
}

// mergeAll merges operands as compactions might: neighbours, in any order.
func mergeAll(t *testing.T, random *rand.Rand, key []byte, values [][]byte) []byte {
	t.Helper()
	values = append([][]byte(nil), values...)
	for len(values) > 1 {
		first := random.IntN(len(values) - 1)
		last := first + 1 + random.IntN(len(values)-first-1)
		older := random.IntN(2) == 0
		start := first
		if older {
			start = last
		}
		m, err := merger.Merge(key, values[start])
		if err != nil {
			t.Fatal(err)
		}
		for i := first + 1; i <= last && !older; i++ {
			err = m.MergeNewer(values[i])
		}
		for i := last - 1; i >= first && older; i-- {
			err = m.MergeOlder(values[i])
		}
		if err != nil {
			t.Fatal(err)
		}
		merged, _, err := m.Finish(random.IntN(2) == 0)
		if err != nil {
			t.Fatal(err)
		}
		values = append(values[:first], append([][]byte{merged}, values[last+1:]...)...)
	}
	return values[0]
}

// The merged bytes are those of the exact sum, however Pebble groups the operands.
func TestSumsMergeInAnyGrouping(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	key := newKeyspace("ns").shard(nil, 1, "a", 0)
	edges := []int64{math.MaxInt64, math.MinInt64, 1, -1, 1 << 62, -1 << 62, 0}
	for range 2000 {
		var values [][]byte
		want := new(big.Int)
		for range 1 + random.IntN(12) {
			delta := int64(random.Uint64())
			if random.IntN(2) == 0 {
				delta = edges[random.IntN(len(edges))]
			}
			want.Add(want, big.NewInt(delta))
			values = append(values, fromInt64(delta).encode(nil))
		}
		got := mergeAll(t, random, key, values)
		if again := mergeAll(t, random, key, values); !bytes.Equal(got, again) {
			t.Fatalf("two groupings of %x give %x and %x", values, got, again)
		}
		sum, err := decodeSum(got)
		if err != nil || sum.big().Cmp(want) != 0 {
			t.Fatalf("sum of %x: got %s, %v, want %s", values, sum.big(), err, want)
		}
		total, overflow := sum.total()
		inside := want.IsInt64()
		if overflow == inside || inside && total != want.Int64() {
			t.Fatalf("total of %s: got %d, overflow %t", want, total, overflow)
		}
		if short := len(got) == 8; short != want.IsInt64() {
			t.Fatalf("%s takes %d bytes", want, len(got))
		}
	}
}

func TestRecordsMergeToTheirMaximum(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(3, 4))
	key := newKeyspace("").named(nil, kindRecord, "a")
	values := [][]byte{encodeRecord(nil, 3), encodeRecord(nil, 20), encodeRecord(nil, 1), encodeRecord(nil, 20), encodeRecord(nil, 7)}
	for range 100 {
		if got, err := decodeRecord(mergeAll(t, random, key, values)); got != (record{shards: 20}) || err != nil {
			t.Fatalf("got %+v, %v, want 20 shards", got, err)
		}
	}
}

// Growths and resets merge to the same record however Pebble groups them: the newest reset, deleted
// unless a growth came after it, and the most shards.
func TestRecordsMergeInAnyGrouping(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(5, 6))
	key := newKeyspace("").named(nil, kindRecord, "a")
	for range 1000 {
		var values [][]byte
		var want record
		for n := range 1 + random.IntN(8) {
			r := record{shards: 1 + random.IntN(20)}
			if random.IntN(2) == 0 {
				r.wasReset = true
				r.ResetState = store.ResetState{Baseline: sums.Of(int64(random.Uint64())), ResetAt: time.UnixMicro(int64(n + 1)).UTC()}
				if random.IntN(2) == 0 {
					r.DeletedAt = time.UnixMicro(int64(n + 2)).UTC()
				}
			}
			values = append(values, r.encode(nil))
			most := max(want.shards, r.shards)
			if r.wasReset {
				want = r
			}
			want.shards = most
			if !r.wasReset {
				want.DeletedAt = time.Time{}
			}
		}
		if got, err := decodeRecord(mergeAll(t, random, key, values)); got != want || err != nil {
			t.Fatalf("%x: got %+v, %v, want %+v", values, got, err, want)
		}
	}
}

func TestMergeRefusesWhatItCannotRead(t *testing.T) {
	t.Parallel()
	ks := newKeyspace("ns")
	for _, c := range []struct{ key, value []byte }{
		{ks.shard(nil, 1, "a", 0), []byte("1234567")},
		{ks.named(nil, kindRecord, "a"), []byte("1")},
		{ks.named(nil, kindDead, "a"), make([]byte, 8)},
		{metaKey, make([]byte, 8)}, {nil, make([]byte, 8)}, {[]byte{1, 200, 's'}, make([]byte, 8)},
	} {
		if _, err := merger.Merge(c.key, c.value); err == nil {
			t.Errorf("merge of %q into %q: got no error", c.value, c.key)
		}
	}
}

// A shard whose sum left int64 and came back is exact, also after flushes and compactions.
func TestOverflowIsNotForEver(t *testing.T) {
	t.Parallel()
	s := open(t, Config{Dir: t.TempDir()})
	var want int64
	deltas := []int64{math.MaxInt64, 5, 1 << 62, -7, math.MinInt64 + 1, -1 << 62}
	for _, d := range deltas {
		want += d // wraps and comes back
		fold(t, s, nil, "a", d)
		if err := s.db.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		got, _, err := getShard(s.db, s.keys.shard(nil, wire.Order("a"), "a", 0))
		if total, overflow := got.count.total(); err != nil || overflow || total != want {
			t.Errorf("got %d, overflow %t, %v, want %d", total, overflow, err, want)
		}
		if err := s.db.Compact(t.Context(), []byte{0}, []byte{0xff}, false); err != nil {
			t.Fatal(err)
		}
	}
}

func TestEpochEndsAtExpiryOrLater(t *testing.T) {
	t.Parallel()
	for _, expire := range []time.Time{
		{}, time.UnixMicro(0), time.UnixMicro(1), time.UnixMicro(epochLength.Microseconds()),
		time.UnixMicro(epochLength.Microseconds() + 1), time.Date(2026, 11, 21, 0, 0, 0, 1000, time.UTC),
		time.Date(2687, 1, 1, 0, 0, 0, 0, time.UTC),
	} {
		e, err := epochOf(expire)
		if err != nil || e.end().Before(expire.Truncate(time.Microsecond)) || expire.Year() > 1970 && e.end().Sub(expire) >= epochLength {
			t.Errorf("expiry %s: epoch %d ends %s, %v", expire, e, e.end(), err)
		}
	}
	if _, err := epochOf(time.Date(2700, 1, 1, 0, 0, 0, 0, time.UTC)); err == nil {
		t.Errorf("year 2700: got no error")
	}
}

var _ pebbledb.ValueMerger = (*sumMerger)(nil)
