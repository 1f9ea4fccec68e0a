package client_test

import (
	"errors"
	"testing"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/client"
)

func TestIndexes(t *testing.T) {
	t.Parallel()
	c, ctx := serve(t), t.Context()
	if err := c.Increment(ctx, countmill.Increment{Counter: "page:a:1", Delta: 5}); err != nil {
		t.Fatal(err)
	}
	made, err := c.CreateIndex(ctx, "sites", "page:{site}:*", "site:{site}")
	if err != nil || len(made.Indexes) != 1 || made.Indexes[0].Group != "site:{site}" {
		t.Fatalf("CreateIndex: got %+v, %v", made, err)
	}
	for deadline := time.Now().Add(time.Minute); made.Indexes[0].State != "serving"; made, err = c.Indexes(ctx) {
		if err != nil || time.Now().After(deadline) {
			t.Fatalf("it does not serve: %+v, %v", made, err)
		}
	}
	if got, err := c.Total(ctx, "=site:a"); err != nil || got.Total != 5 || made.Indexes[0].CheckedAt == nil {
		t.Errorf("the group: got %+v, %v, checked at %v", got, err, made.Indexes[0].CheckedAt)
	}
	if err := c.Increment(ctx, countmill.Increment{Counter: "=site:a", Delta: 1}); !errors.Is(err, countmill.ErrInvalid) {
		t.Errorf("an increment of a group: got %v", err)
	}
	if made, err = c.DeleteIndex(ctx, "sites"); err != nil || made.Indexes[0].State != "deleting" {
		t.Errorf("DeleteIndex: got %+v, %v", made, err)
	}
	if _, err := c.Total(ctx, "=site:a"); !errors.Is(err, countmill.ErrUnavailable) {
		t.Errorf("a group that is being deleted: got %v", err)
	}
	if _, err := c.DeleteIndex(ctx, "none"); !errors.Is(err, client.ErrNotFound) {
		t.Errorf("an index that does not exist: got %v", err)
	}
}
