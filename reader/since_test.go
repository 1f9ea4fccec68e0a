package reader_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/reader"
)

// A cached total serves a caller that has seen an older one, and no caller that has seen a later one.
func TestTotalsSince(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st, cache := &fakeStore{}, &fakeCache{}
		st.put("c", 1)
		a, b := newReader(t, st, cache, reader.Config{}), newReader(t, st, cache, reader.Config{})
		first := one(t, a, "c", time.Minute)
		time.Sleep(time.Second)
		since := func(r *reader.Reader, at time.Time) reader.Total {
			t.Helper()
			got, err := r.TotalsSince(t.Context(), []string{"c"}, time.Minute, at)
			if err != nil {
				t.Fatal(err)
			}
			return got[0]
		}
		if got := since(b, first.AsOf); got.Source != reader.SourceCache {
			t.Errorf("of the cached moment: from the %s, want the cache", got.Source)
		}
		st.put("c", 2)
		seen := one(t, b, "c", 0) // which the cache does not get
		if got := since(a, seen.AsOf); got.Total != 2 || got.Source != reader.SourceStore {
			t.Errorf("of a later moment: %d from the %s, want 2 from the store", got.Total, got.Source)
		}
		// The machine's clock is set back: moments are compared with moments.
		if got := since(a, first.AsOf.Add(time.Microsecond)); got.Total != 2 {
			t.Errorf("a microsecond later than the cached one: %d, want 2", got.Total)
		}
	})
}

// A moment a little ahead is waited for. One further ahead is refused, for totals and lists.
func TestTotalsSinceAhead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st := &fakeStore{}
		st.put("c", 1)
		r := newReader(t, st, nil, reader.Config{})
		began := time.Now()
		for _, staleness := range []time.Duration{0, time.Minute} { // without the cache, and with it
			since := time.Now().Add(reader.MaxAhead)
			got, err := r.TotalsSince(t.Context(), []string{"c"}, staleness, since)
			if err != nil || got[0].AsOf.Before(since) {
				t.Errorf("a second ahead, %s old: %+v, %v; want one of %s", staleness, got, err, since)
			}
		}
		totals := func(staleness time.Duration) error {
			_, err := r.TotalsSince(t.Context(), []string{"c"}, staleness, time.Now().Add(reader.MaxAhead+time.Millisecond))
			return err
		}
		for name, read := range map[string]func() error{
			"totals":       func() error { return totals(0) },
			"older totals": func() error { return totals(time.Minute) },
			"list": func() error {
				_, err := r.ListSince(t.Context(), "", "", 10, time.Now().Add(reader.MaxAhead+time.Millisecond))
				return err
			},
		} {
			var field *countmill.FieldError
			if err := read(); !errors.As(err, &field) || field.Field != "min_as_of" {
				t.Errorf("%s more than a second ahead: %v, want an error of min_as_of", name, err)
			}
		}
		if page, err := r.ListSince(t.Context(), "", "", 10, time.Now().Add(time.Millisecond)); err != nil || page.AsOf.Before(began) {
			t.Errorf("a list a millisecond ahead: as of %s, %v", page.AsOf, err)
		}
	})
}
