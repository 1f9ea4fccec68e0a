package client_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/client"
)

func TestBoards(t *testing.T) {
	t.Parallel()
	c, ctx := serve(t), t.Context()
	for counter, delta := range map[string]int64{"page:a:1": 5, "page:a:2": 7, "page:b:1": 11} {
		if err := c.Increment(ctx, countmill.Increment{Counter: counter, Delta: delta}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.CreateIndex(ctx, "sites", "page:{site}:*", "site:{site}"); err != nil {
		t.Fatal(err)
	}
	q := client.BoardQuery{Index: "sites"}
	for deadline := time.Now().Add(time.Minute); ; {
		x, err := c.Indexes(ctx)
		if err != nil || time.Now().After(deadline) {
			t.Fatalf("it does not serve: %+v, %v", x, err)
		}
		if x.Indexes[0].State == "serving" {
			break
		}
	}
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
	if _, err := c.Top(ctx, client.BoardQuery{Index: "sites", Window: "today", Zone: "Asia/Kolkata"}, 0); !errors.Is(err, client.ErrNotFound) {
		t.Errorf("a window without a series: got %v", err)
	}
	if _, err := c.Rank(ctx, client.BoardQuery{Index: "sites", Window: "today", Zone: "Nowhere/Land"}, "page:a:1"); !errors.Is(err, countmill.ErrInvalid) {
		t.Errorf("an unknown zone: got %v", err)
	}
	if _, err := c.Top(ctx, q, 1001); !errors.Is(err, countmill.ErrInvalid) {
		t.Errorf("1,001 counters: got %v", err)
	}
}
