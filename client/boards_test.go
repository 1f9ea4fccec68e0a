package client_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/client"
)

func TestIndexesAndBoards(t *testing.T) {
	t.Parallel()
	c, ctx := serve(t), t.Context()
	for counter, delta := range map[string]int64{"page:a:1": 5, "page:a:2": 7, "page:b:1": 11} {
		must(t, c.Increment(ctx, countmill.Increment{Counter: counter, Delta: delta}))
	}
	x, err := c.CreateIndex(ctx, "sites", "page:{site}:*", "site:{site}")
	if err != nil || len(x.Indexes) != 1 || x.Indexes[0].Group != "site:{site}" {
		t.Fatalf("CreateIndex: got %+v, %v", x, err)
	}
	for deadline := time.Now().Add(time.Minute); x.Indexes[0].State != "serving"; x, err = c.Indexes(ctx) {
		if err != nil || time.Now().After(deadline) {
			t.Fatalf("it does not serve: %+v, %v", x, err)
		}
	}
	if got, err := c.Total(ctx, "=site:a"); err != nil || got.Total != 12 || x.Indexes[0].CheckedAt == nil {
		t.Errorf("the group: got %+v, %v, checked at %v", got, err, x.Indexes[0].CheckedAt)
	}
	q := client.BoardQuery{Index: "sites"}
	top, err := c.Top(ctx, q, 2)
	if diff := cmp.Diff([]client.TopCounter{{"page:b:1", 11, 1}, {"page:a:2", 7, 2}}, top.Top); diff != "" || err != nil || top.CompleteAsOf.IsZero() {
		t.Errorf("Top: got %+v, %v", top, err)
	}
	top, err = c.TopGroups(ctx, q, 0)
	if diff := cmp.Diff([]client.TopCounter{{"=site:a", 12, 1}, {"=site:b", 11, 2}}, top.Top); diff != "" || err != nil {
		t.Errorf("TopGroups: got %+v, %v", top, err)
	}
	if r, err := c.Rank(ctx, q, "page:a:2"); err != nil || r.Rank == nil || *r.Rank != 2 || r.Of != 3 || r.Total != 7 || r.Counter != "page:a:2" {
		t.Errorf("Rank: got %+v, %v", r, err)
	}
	if r, err := c.Rank(ctx, q, "page:a:none"); err != nil || r.Rank != nil || r.Total != 0 {
		t.Errorf("the rank of a counter that does not exist: got %+v, %v", r, err)
	}
	_, noSeries := c.Top(ctx, client.BoardQuery{Index: "sites", Window: "today", Zone: "Asia/Kolkata"}, 0)
	_, noZone := c.Rank(ctx, client.BoardQuery{Index: "sites", Window: "today", Zone: "Nowhere/Land"}, "page:a:1")
	_, tooMany := c.Top(ctx, q, 1001)
	if x, err = c.DeleteIndex(ctx, "sites"); err != nil || x.Indexes[0].State != "deleting" {
		t.Errorf("DeleteIndex: got %+v, %v", x, err)
	}
	_, deleted := c.Total(ctx, "=site:a")
	_, none := c.DeleteIndex(ctx, "none")
	for what, tc := range map[string][2]error{
		"a window without a series": {noSeries, client.ErrNotFound}, "an unknown zone": {noZone, countmill.ErrInvalid}, "1,001 counters": {tooMany, countmill.ErrInvalid},
		"an increment of a group":       {c.Increment(ctx, countmill.Increment{Counter: "=site:a", Delta: 1}), countmill.ErrInvalid},
		"a group that is being deleted": {deleted, countmill.ErrUnavailable},
		"an index that does not exist":  {none, client.ErrNotFound},
	} {
		if !errors.Is(tc[0], tc[1]) {
			t.Errorf("%s: got %v, want %v", what, tc[0], tc[1])
		}
	}
}
