package datastore

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	pb "cloud.google.com/go/datastore/apiv1/datastorepb"
	"google.golang.org/grpc"

	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/wire"
)

// Pages of several queries keep one rate, and a page takes about a second at most.
func TestPaced(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		p := &paced{rate: 100, began: began}
		for n := 1; n <= 5; n++ {
			if err := p.took(t.Context(), 60); err != nil {
				t.Fatal(err)
			}
			if passed, want := time.Since(began), time.Duration(n)*600*time.Millisecond; passed != want {
				t.Errorf("%d entities took %s, want %s", 60*n, passed, want)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := p.took(ctx, 1_000_000); err == nil || time.Since(began) > 5*time.Second {
			t.Errorf("a look that nobody waits for goes on: %v after %s", err, time.Since(began))
		}
		for rate, want := range map[float64]int{0: sumsPage, 0.5: 1, 7: 7, 1e6: sumsPage} {
			if got := (&paced{rate: rate}).page(); got != want {
				t.Errorf("a page at %g entities a second has %d, want %d", rate, got, want)
			}
		}
	})
}

// A window reads a record, the shards and the days of each counter, no day after the present one, and holds the
// days of one call.
func TestPriceOfAWindow(t *testing.T) {
	t.Parallel()
	const counters, days = 90, 7
	calls := new(tap)
	cfg := fresh(t)
	cfg.DialOptions = []grpc.DialOption{calls.option()}
	s := seriesStore(t, cfg)
	now, err := s.moment(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	today := dayOf(wire.MinuteOf(now.AsTime())).first()
	c := &store.Commit{}
	var growths []store.Growth
	for i := range counters {
		name := fmt.Sprintf("page:a:%02d", i)
		growths = append(growths, store.Growth{Counter: name, Shards: 1})
		c.Adds = append(c.Adds, add(name, 0, 1))
		c.Buckets = append(c.Buckets, store.BucketDelta{Add: i, Minute: today, Delta: 1})
	}
	if err := s.Grow(t.Context(), growths); err != nil {
		t.Fatal(err)
	}
	mustFold(t, s, c)
	looked, most := 0, 0
	calls.set(func(_ string, req, _ any) (bool, error) {
		if r, ok := req.(*pb.LookupRequest); ok && r.GetKeys()[0].GetPath()[0].GetKind() == kindSeries {
			looked, most = looked+len(r.GetKeys()), max(most, len(r.GetKeys()))
		}
		return false, nil
	})
	x, err := store.ParseIndex("sites", "page:{site}:*", "site:{site}")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	from := today - (days-1)*store.DayMinutes
	sums, err := s.Sums(t.Context(), &store.SumsQuery{Index: &x, From: from, To: wire.MinuteOf(wire.MaxTime)}, func(*store.CounterSum) error {
		found++
		return nil
	})
	each := days
	if dayOf(wire.MinuteOf(sums.At.Add(archiveAhead))).first() != today {
		each++ // midnight is near
	}
	if err != nil || found != counters || looked != counters*each || most > daysPage || sums.Read != int64(counters*(2+each)) {
		t.Errorf("%d counters, %d days looked up, at most %d at once, %d entities read, %v; want %d, %d, %d and %d",
			found, looked, most, sums.Read, err, counters, counters*each, daysPage, counters*(2+each))
	}
}

// A call reads the days of as many counters as fit, and no counter's days need two calls if they fit one. At a low
// rate a counter has several calls.
func TestCountersOfOneCall(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		days, want int
		rate       float64
	}{{0, daysPage, 0}, {1, daysPage, 0}, {7, 14, 0}, {31, 3, 0}, {32, 3, 0}, {7, 2, 20}, {31, 1, 20}} {
		w := &windowScan{paced: &paced{rate: c.rate}, first: 20, last: 19 + seriesDay(c.days), days: make(map[ref]*windowed)}
		for held := 1; ; held++ {
			if w.hold(&windowed{counter: fmt.Sprint(held)}); w.full() || held > daysPage {
				if held != c.want || len(w.days) != held*c.days {
					t.Errorf("%d days, at most %g a second: %d days of %d counters in a call, want %d counters", c.days, c.rate, len(w.days), held, c.want)
				}
				break
			}
		}
	}
}
