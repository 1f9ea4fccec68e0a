package api_test

import (
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/countmill/countmill/backend/memory"
	"github.com/countmill/countmill/internal/api"
	"github.com/countmill/countmill/reader"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/storetest/fakestore"
)

// A viewStore counts views: each read of a reader opens one.
type viewStore struct {
	*fakestore.Store
	views atomic.Int64
}

func (s *viewStore) View() store.View {
	s.views.Add(1)
	return s.Store.View()
}

// Watchers cost the store a view a second and the entities of the watched counters, and no more
// than that, also beside a cache.
func TestWatchersCostTheStoreOneReadASecond(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const counters, shards, watchers = 40, 2, 30
		st := &viewStore{Store: fakestore.New(fakestore.Options{})}
		fold := func(counter string, shard int) {
			if _, err := st.Fold(t.Context(), &store.Commit{Adds: []store.ShardDelta{store.NewShardDelta(counter, shard, 1)}}); err != nil {
				t.Error(err)
			}
		}
		for i := range counters {
			name := fmt.Sprintf("page:%02d", i)
			if err := st.Grow(t.Context(), []store.Growth{{Counter: name, Shards: shards}}); err != nil {
				t.Fatal(err)
			}
			fold(name, i%shards)
		}
		cache, err := memory.New(memory.Config{})
		if err != nil {
			t.Fatal(err)
		}
		r, err := reader.New(st, cache, reader.Config{DefaultStaleness: 2 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		srv, _ := watched(t, r, api.Config{})
		first := srv.watch(t, "/v1/watch?prefix=page:")
		if e := first.event(); len(e.Totals) != counters {
			t.Errorf("the first event has %d totals, want %d", len(e.Totals), counters)
		}
		for range watchers {
			s := srv.watch(t, "/v1/watch?prefix=page:")
			go func() { _, _ = io.Copy(io.Discard, s.resp.Body) }()
		}
		time.Sleep(500 * time.Millisecond)
		views, keys := st.views.Load(), r.Stats().Keys
		for range 20 {
			fold("page:07", 1)
			first.wantEventOf("page:07")
		}
		if n := st.views.Load() - views; n < 19 || n > 20 {
			t.Errorf("20 seconds took %d views of the store, want one a second", n)
		}
		// A list reads the records without a look-up.
		if n, most := r.Stats().Keys-keys, int64(20*counters*(shards+1)); n < most*8/10 || n > most {
			t.Errorf("20 seconds took %d keys, want at most %d", n, most)
		}
	})
}

// The reader knows the limits of a prefix.
func TestWatchRefusesABadPrefix(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r, err := reader.New(fakestore.New(fakestore.Options{}), nil, reader.Config{})
		if err != nil {
			t.Fatal(err)
		}
		srv, h := watched(t, r, api.Config{})
		for prefix, want := range map[string]string{
			strings.Repeat("x", 501): `"field":"prefix","limit":"0 to 500 bytes"`,
			"%FF":                    `"field":"prefix","limit":"valid UTF-8"`,
		} {
			if status, got, _ := srv.call(t, "GET", "/v1/watch?prefix="+prefix); status != 400 || !strings.Contains(got, want) {
				t.Errorf("%.10s: got %d %s, want 400 with %s", prefix, status, got, want)
			}
		}
		if n := h.Watchers(); n != 0 {
			t.Errorf("%d watchers are left, want none", n)
		}
	})
}

// wantEventOf wants an event with this counter alone.
func (s *stream) wantEventOf(counter string) {
	s.tb.Helper()
	e := s.event()
	if len(e.Totals) != 1 || e.Totals[0].Counter != counter || len(e.Removed) > 0 {
		s.tb.Errorf("got the event %q, want %s alone", e.text(), counter)
	}
}
