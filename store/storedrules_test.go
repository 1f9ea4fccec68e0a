package store

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/countmill/countmill"
)

// The form of rules in databases stays as it is.
func TestStoredRules(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC)
	x, err := ParseIndex("sites", "page:{site}:*", "site:{site}")
	if err != nil {
		t.Fatal(err)
	}
	x.Number, x.Version, x.Since = 3, 3, at
	y := x
	y.Name, y.Serving, y.Checked, y.Ended = "older", at, at.Add(time.Hour), at.Add(2*time.Hour)
	rules := &Rules{
		Series: []Rule{
			{Pattern: "a", Keep: Retention{Minutes: 6 * time.Hour, Quarters: 400 * days}, Since: at},
			{Pattern: "b*", Keep: Retention{Quarters: 30 * days}, Since: at, Ended: at.Add(time.Hour), Filled: Period{at.Add(-time.Hour), at.Add(-time.Minute)}},
		},
		Indexes: []Index{y, x},
		Journal: []Rule{
			{Pattern: "c", Keep: Retention{Entries: 30 * days}, Version: 4, Since: at},
			{Pattern: "d*", Keep: Retention{Entries: 36 * time.Hour, Paged: true}, PagedSince: at.Add(time.Hour), Version: 5, Since: at, Ended: at.Add(2 * time.Hour)},
		},
		JournalFrom: 4, JournalSince: at.Add(time.Minute),
	}
	const want = `{"series":[{"pattern":"a","keep":"1m:6h,15m:400d","since":"2026-11-25T12:00:00Z"},` +
		`{"pattern":"b*","keep":"15m:30d","since":"2026-11-25T12:00:00Z","ended":"2026-11-25T13:00:00Z","filled":{"from":"2026-11-25T11:00:00Z","to":"2026-11-25T11:59:00Z"}}],` +
		`"indexes":[{"name":"older","number":3,"match":"page:{site}:*","group":"site:{site}","version":3,"since":"2026-11-25T12:00:00Z",` +
		`"serving":"2026-11-25T12:00:00Z","checked":"2026-11-25T13:00:00Z","ended":"2026-11-25T14:00:00Z"},` +
		`{"name":"sites","number":3,"match":"page:{site}:*","group":"site:{site}","version":3,"since":"2026-11-25T12:00:00Z"}],` +
		`"journal":[{"pattern":"c","keep":"30d","since":"2026-11-25T12:00:00Z","version":4},` +
		`{"pattern":"d*","keep":"36h,paged","since":"2026-11-25T12:00:00Z","ended":"2026-11-25T14:00:00Z","paged_since":"2026-11-25T13:00:00Z","version":5}],` +
		`"journal_from":4,"journal_since":"2026-11-25T12:01:00Z"}`
	written, err := json.Marshal(rules)
	if err != nil || string(written) != want {
		t.Errorf("got  %s, %v\nwant %s", written, err, want)
	}
	again := new(Rules)
	if err := errors.Join(json.Unmarshal(written, again), again.Parse()); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(rules, again, cmpopts.IgnoreUnexported(Index{})); diff != "" {
		t.Errorf("rules read again (-want +got):\n%s", diff)
	}
	if group, ok := again.Indexes[1].GroupOf("page:s1:/"); !ok || group != countmill.GroupMark+"site:s1" {
		t.Errorf("an index that was read has the group %q, %t", group, ok)
	}
}

func TestStoredRulesRefused(t *testing.T) {
	t.Parallel()
	for text, field := range map[string]string{
		`{"series":[{"pattern":"a","keep":"1m:6h"}]}`:                               "keep",
		`{"series":[{"pattern":"a","keep":"30d"}]}`:                                 "keep",
		`{"indexes":[{"name":"sites","match":"page:{site","group":"site:{site}"}]}`: "match",
		`{"journal":[{"pattern":"a","keep":"30d,sorted"}]}`:                         "keep",
		`{"journal":[{"pattern":"a","keep":"15m:30d"}]}`:                            "keep",
	} {
		var r Rules
		err := json.Unmarshal([]byte(text), &r)
		if err == nil {
			err = r.Parse()
		}
		if err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%s is read as %+v, %v; want an error with %s", text, r, err, field)
		}
	}
}
