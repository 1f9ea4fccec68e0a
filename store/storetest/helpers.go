package storetest

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"slices"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/int128"
	"github.com/countmill/countmill/wire"
)

// oddNames are counters that a careless store mixes up, cuts or refuses.
var oddNames = []string{
	"a", "A", "b", "a/b", "a//b", "a/../b", "../a", "/", "//", ".", "..", "a:1", "a:", ":", "a%2Fb", "a%2fb",
	"https://x.org/p", "https://x.org/p?q=1&r=2#f", "a b", "a\\b", "a'b", `a"b`, "a\u00e9b", "ae\u0301b", "日本語", "😀", "\U0010ffff",
	"_", "__", "___", "__a", "a__", "-", "--x", "*", "[a-z]", "null", "0", "00", "1e3", "~", "a\u00a0b",
	long("x"), long("y"), long("x")[:499], long("ü"),
}

// long returns a name of 500 bytes.
func long(s string) string {
	name := make([]byte, 0, 500)
	for len(name)+len(s) <= 500 {
		name = append(name, s...)
	}
	return string(name)
}

func newID(class wire.Class) wire.PartID {
	return wire.RandomID(rand.Reader, class)
}

// marker returns a new marker that expires after about the default deduplication window.
func marker() store.Marker {
	var b [16]byte
	_, _ = rand.Read(b[:])
	at := time.Now().Truncate(time.Microsecond)
	return store.Marker{
		ID:          newID(wire.AnonymousClass),
		Fingerprint: wire.Fingerprint(binary.BigEndian.Uint64(b[:])),
		Fold:        binary.BigEndian.Uint64(b[8:]),
		At:          at,
		ExpireAt:    at.Add(countmill.DefaultDedupWindow + store.MarkerSlack),
	}
}

func add(counter string, shard int, delta int64) store.ShardDelta {
	return store.NewShardDelta(counter, shard, delta)
}

// commit sorts the adds in the order that a store may expect.
func commit(markers []store.Marker, adds ...store.ShardDelta) *store.Commit {
	slices.SortFunc(adds, func(a, b store.ShardDelta) int {
		return cmp.Or(cmp.Compare(a.Order, b.Order), cmp.Compare(a.Counter, b.Counter), cmp.Compare(a.Shard, b.Shard))
	})
	return &store.Commit{Markers: markers, Adds: adds}
}

func one(m store.Marker) []store.Marker { return []store.Marker{m} }

// certain reports whether err means that nothing was applied.
func certain(err error) bool {
	return errors.Is(err, store.ErrMarkerExists) || errors.Is(err, store.ErrRefused) ||
		errors.Is(err, store.ErrDeployment) || errors.Is(err, store.ErrNotCounted) ||
		errors.Is(err, store.ErrNotApplied)
}

// mustFold folds a commit that must succeed at once.
func mustFold(t *testing.T, s store.Store, c *store.Commit) time.Time {
	t.Helper()
	folded, err := s.Fold(t.Context(), c)
	if err != nil {
		t.Fatalf("Fold of %d markers and %d adds: %v", len(c.Markers), len(c.Adds), err)
	}
	return folded.At
}

// foldRetrying folds a commit with a marker as an aggregator does: it repeats the fold after an error
// with an unknown outcome. It reports whether an earlier attempt may have been applied, which makes
// ErrMarkerExists ambiguous.
func foldRetrying(ctx context.Context, s store.Store, c *store.Commit) (maybe bool, err error) {
	for range 100 {
		_, err = s.Fold(ctx, c)
		switch {
		case ctx.Err() != nil:
			return maybe, err
		case errors.Is(err, store.ErrNotApplied):
		case err == nil || certain(err):
			return maybe, err
		default:
			maybe = true
		}
	}
	return maybe, err
}

func lookup(t testing.TB, v store.View, keys ...store.Key) []store.Value {
	t.Helper()
	values, err := v.Lookup(t.Context(), keys)
	if err != nil || len(values) != len(keys) {
		t.Fatalf("Lookup of %d keys returned %d values, %v", len(keys), len(values), err)
	}
	return values
}

// of makes a sum.
func of(n int64) int128.Int { return int128.Of(n) }

// small returns a sum that fits int64.
func small(t testing.TB, sum int128.Int) int64 {
	t.Helper()
	n, fits := sum.Int64()
	if !fits {
		t.Fatalf("a sum of %d", sum)
	}
	return n
}

// count reads one shard in a view of its own.
func count(t testing.TB, s store.Store, counter string, shard int) int64 {
	t.Helper()
	v := s.View()
	defer v.Close()
	return small(t, lookup(t, v, store.Key{Counter: counter, Shard: shard})[0].Count)
}

// sum adds up shards 0 to n-1 in a view of its own.
func sum(t testing.TB, s store.Store, counter string, n int) int64 {
	t.Helper()
	v := s.View()
	defer v.Close()
	return sumView(t, v, counter, n)
}

func applied(t testing.TB, s store.Store, ids ...wire.PartID) []store.Marker {
	t.Helper()
	found, err := s.Applied(t.Context(), ids)
	if err != nil {
		t.Fatalf("Applied: %v", err)
	}
	slices.SortFunc(found, func(a, b store.Marker) int { return slices.Compare(a.ID[:], b.ID[:]) })
	return found
}

func grow(t testing.TB, s store.Store, growths ...store.Growth) {
	t.Helper()
	if err := s.Grow(t.Context(), growths); err != nil {
		t.Fatalf("Grow: %v", err)
	}
}

func shards(t testing.TB, s store.Store, counters ...string) []int {
	t.Helper()
	got, err := s.Shards(t.Context(), counters)
	if err != nil {
		t.Fatalf("Shards: %v", err)
	}
	return got
}

var (
	// sameTimes compares moments, not their time zones.
	sameTimes = cmpopts.EquateApproxTime(0)
	// sameMarkers lets a store leave out one of a marker's two times.
	sameMarkers = gocmp.Comparer(func(a, b store.Marker) bool {
		at, expire := a.At.Equal(b.At), a.ExpireAt.Equal(b.ExpireAt)
		return a.ID == b.ID && a.Fingerprint == b.Fingerprint && a.Fold == b.Fold && (at || expire) &&
			(at || a.At.IsZero() || b.At.IsZero()) && (expire || a.ExpireAt.IsZero() || b.ExpireAt.IsZero())
	})
	equateEmpty = cmpopts.EquateEmpty()
)
