package admin

import (
	"errors"
	"fmt"
	"testing"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/protocol/protocoltest"
)

// The groups of a page are bounded, and the error names the parameter that makes them fewer.
func TestGroupsOfAPageAreBounded(t *testing.T) {
	t.Parallel()
	st := protocoltest.New(protocoltest.Options{})
	set, err := st.ChangeRules(t.Context(), store.RuleChange{Index: &store.IndexChange{
		Step: store.CreateIndex, Index: store.Index{Name: "sites", Match: "page:{site}:*", Group: "site:{site}"}}})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		if err := st.Grow(t.Context(), []store.Growth{{Counter: fmt.Sprint("page:s", i, ":x"), Shards: 1}}); err != nil {
			t.Fatal(err)
		}
	}
	for prefix, most := range map[string]int{"": 3, "=site:s1": 1} {
		c := &groupCheck{
			view: st.View(), index: set.Rules.Index("sites"), prefix: prefix, most: most, sums: make(map[string]*groupSum),
		}
		if err := c.read(t.Context()); err != nil || len(c.sums) != most {
			t.Errorf("under %q: %d groups, %v; want %d", prefix, len(c.sums), err, most)
		}
		c.most--
		field, ok := errors.AsType[*countmill.FieldError](c.read(t.Context()))
		if want := fmt.Sprint(c.most, " groups"); !ok || field.Field != "prefix" || field.Limit != want {
			t.Errorf("under %q, with %s at most: got %v", prefix, want, field)
		}
		c.view.Close()
	}
}
