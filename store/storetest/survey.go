package storetest

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/wire"
)

// pages returns all shards of a prefix, read in pages of limit, as "counter number count record",
// sorted.
func pages(t testing.TB, s store.Store, prefix string, limit int) (all []string) {
	t.Helper()
	from := ""
	for range 10_000 {
		page, err := s.ShardPage(t.Context(), prefix, from, limit)
		if err != nil {
			t.Fatalf("ShardPage(%q, %q, %d): %v", prefix, from, limit, err)
		}
		if len(page.Shards) > limit {
			t.Fatalf("a page of %d shards, limit %d", len(page.Shards), limit)
		}
		if now := readTime(t, s); page.At.Before(now.Add(-time.Hour)) || page.At.After(now.Add(time.Hour)) {
			t.Errorf("a page at %s", page.At)
		}
		all = append(all, lines(page)...)
		if from = page.Next; from == "" {
			slices.Sort(all)
			return all
		}
	}
	t.Fatalf("ShardPage(%q) does not end", prefix)
	return nil
}

func lines(page store.ShardPage) (all []string) {
	for _, sh := range page.Shards {
		all = append(all, fmt.Sprintf("%s %03d %d of %d%s", sh.Counter, sh.Number, sh.Count, page.Records[sh.Counter], sh.Bad))
	}
	return all
}

func testShardPages(t *testing.T, su *suite) {
	s := su.open(t)
	if got := pages(t, s, "", 10); len(got) != 0 {
		t.Errorf("an empty store has shards: %q", got)
	}
	var want []string
	var adds []store.ShardDelta
	for i, name := range oddNames {
		n := i%3 + 1
		if i%4 != 3 { // otherwise the counter has no record
			grow(t, s, store.Growth{Counter: name, Shards: n})
		}
		for shard := range n + i%2 { // some shards beyond the record
			record := n
			if i%4 == 3 {
				record = 0
			}
			adds = append(adds, add(name, shard, int64(i+1)))
			want = append(want, fmt.Sprintf("%s %03d %d of %d", name, shard, i+1, record))
		}
	}
	for lot := range slices.Chunk(adds, 20) {
		mustFold(t, s, commit(nil, lot...))
	}
	slices.Sort(want)
	for _, limit := range []int{1, 7, store.MaxSurveyPage} {
		if limit == 1 && su.rounds < 200 {
			continue // too slow behind a network
		}
		if diff := cmp.Diff(want, pages(t, s, "", limit)); diff != "" {
			t.Errorf("shards in pages of %d (-want +got):\n%s", limit, diff)
		}
	}
	for _, prefix := range []string{"a", "a/", "é", "nobody", "\U0010ffff"} {
		some := slices.DeleteFunc(slices.Clone(want), func(line string) bool { return !strings.HasPrefix(line, prefix) })
		if diff := cmp.Diff(some, pages(t, s, prefix, 7), cmp.Transformer("none", func(l []string) []string { return append([]string{}, l...) })); diff != "" {
			t.Errorf("shards of %q (-want +got):\n%s", prefix, diff)
		}
	}
}

func testShardsOf(t *testing.T, su *suite) {
	s := su.open(t)
	before := readTime(t, s).Add(-time.Minute)
	grow(t, s, store.Growth{Counter: "a", Shards: 3}, store.Growth{Counter: "a:1", Shards: 1})
	mustFold(t, s, commit(nil, add("a", 1, -5), add("a", 0, 3), add("a", countmill.MaxShards-1, 7), add("a:1", 0, 100)))
	for i := range 4 {
		if i > 0 {
			mustFold(t, s, commit(nil, add("a", 2, wire.MaxSum)))
		}
	}
	page, err := s.ShardsOf(t.Context(), "a")
	if err != nil {
		t.Fatalf("ShardsOf: %v", err)
	}
	want := []string{"a 000 3 of 3", "a 001 -5 of 3", fmt.Sprintf("a 002 %d of 3", of(wire.MaxSum).Add(of(wire.MaxSum)).Add(of(wire.MaxSum))), "a 998 7 of 3"}
	if diff := cmp.Diff(want, lines(page)); diff != "" {
		t.Errorf("ShardsOf (-want +got):\n%s", diff)
	}
	for _, sh := range page.Shards {
		if !sh.Updated.IsZero() && (sh.Updated.Before(before) || sh.Updated.After(page.At)) {
			t.Errorf("shard %d was last written at %s, read at %s", sh.Number, sh.Updated, page.At)
		}
	}
	if page, err := s.ShardsOf(t.Context(), "nobody"); err != nil || len(page.Shards) != 0 || len(page.Records) != 0 {
		t.Errorf("ShardsOf a counter that nobody incremented: %+v, %v; want nothing", page, err)
	}
}
