package datastore

import (
	"testing"

	pb "cloud.google.com/go/datastore/apiv1/datastorepb"

	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/wire"
)

// A group's buckets are moved to the archive in the middle of DropGroups: no day of it stays.
func TestMoveInTheMiddleOfDropGroups(t *testing.T) {
	t.Parallel()
	cfg := fresh(t)
	other := seriesStore(t, cfg)
	s, tap := tapped(t, cfg)
	createIndex(t, other)
	const group = "=site:a"
	mustRaise(t, other, group, 1)
	c := ones(group, run(wire.MinuteOf(now())-store.SeriesBuckets, store.SeriesBuckets+1, 1)...)
	c.Archive = other.Limits().Ring.Archive(now())
	mustFold(t, other, c)
	x := changeIndex(t, other, store.DeleteIndex, store.Index{})
	moved := 0
	tap.set(func(_ string, req, _ any) (bool, error) {
		if _, ok := req.(*pb.BeginTransactionRequest); ok {
			n, err := other.MoveSeries(t.Context())
			if moved += n; err != nil {
				t.Errorf("MoveSeries: %v", err)
			}
		}
		return false, nil
	})
	for n, calls := 1, 0; n > 0; calls++ {
		var err error
		if n, err = s.DropGroups(t.Context(), x, 10); err != nil || calls > 10 {
			t.Fatalf("call %d of DropGroups: %d, %v", calls, n, err)
		}
	}
	if a, b, c := rows(t, s, kindCounter), rows(t, s, kindShard), rows(t, s, kindSeries); a+b+c != 0 || moved != 1 {
		t.Errorf("after %d moves there are %d records, %d shards and %d days; want 1 and none", moved, a, b, c)
	}
}
