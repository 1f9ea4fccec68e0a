package api_test

import (
	"context"
	"errors"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/countmill/countmill/client"
	"github.com/countmill/countmill/internal/api"
	"github.com/countmill/countmill/reader"
	"github.com/countmill/countmill/store"
)

var asOfNow = regexp.MustCompile(`"as_of":"[^"]*"`)

func busyReader() *fakeReader {
	return &fakeReader{
		pipeline: reader.Pipeline{
			Workers: 2, Lag: 250 * time.Millisecond, RatesKnown: true,
			Increments: 48_000, Entries: 900, Commits: 4, Entities: 120,
			Folded: 9000, Written: 60, Duplicates: 7, DeadLetters: 1,
		},
		fleet: []store.Worker{
			{ID: "a", Lag: 250 * time.Millisecond, LastCommit: asOf, LastDeadLetter: asOf.Add(-time.Hour), Settings: 3, AtLimit: []string{"shop:a", "page:/home"},
				Setup: map[string]string{"max-shards": "128", "shard-rate": "1"}},
			{ID: "b", Stalled: true, Skew: time.Hour, Settings: 4, AtLimit: []string{"shop:a"}, LastDeadLetter: asOf, Setup: map[string]string{"max-shards": "64"}},
		},
		busiest: []store.Busy{{Counter: "page:/home", Rate: 1200.0004}, {Counter: "shop:a", Rate: 3}, {Counter: "page:<script>", Rate: 1}},
	}
}

// wholeServices have everything that an overview shows.
func wholeServices() api.Services {
	return api.Services{
		Reader: busyReader(), Ready: func(context.Context) (string, error) { return "cache: away", nil },
		Disk: func() client.DiskSpace { return client.DiskSpace{Used: 1, Free: 2, MinFree: 3} }, LastBackup: func() time.Time { return asOf }, BackupEvery: 90 * time.Second,
		Unbalanced: func() (int, bool) { return 2, true }, Restored: func() time.Time { return asOf },
	}
}

func TestOverview(t *testing.T) {
	t.Parallel()
	status, text, _ := ask(t, wholeServices(), api.Config{Roles: []string{"reader"}}).call(t, "GET", "/v1/overview", "")
	const want = `{"roles":["reader"],"aggregators":2,"status":"degraded","lag":0.25,` +
		`"increments_per_second":48000,"commits_per_second":4,"increments_per_write":400,"as_of":"NOW",` +
		`"since_start":{"increments":9000,"writes":60,"increments_per_write":150,"duplicates":7,"dead_letters":1},` +
		`"busiest":[{"counter":"page:/home","moved_per_second":1200},{"counter":"shop:a","moved_per_second":3},{"counter":"page:<script>","moved_per_second":1}],` +
		`"at_limit":["page:/home","shop:a"],"last_dead_letter":"2026-11-21T04:04:03.120000Z",` +
		`"reason":"cache: away","fleet":[{"id":"a","stalled":false,"lag":0.25,"clock_skew":0,"last_commit":"2026-11-21T04:04:03.120000Z"},{"id":"b","stalled":true,"lag":0,"clock_skew":3600}],` +
		`"differences":[{"setting":"max-shards","values":["128","64"]},{"setting":"settings_version","values":["3","4"]}],` +
		`"disk":{"used":1,"free":2,"min_free":3},"last_backup":"2026-11-21T04:04:03.120000Z","backup_every":90,"restored":"2026-11-21T04:04:03.120000Z","journal_rules_without_balance":2}`
	text = asOfNow.ReplaceAllString(text, `"as_of":"NOW"`)
	if status != 200 || strings.TrimSpace(text) != want {
		t.Errorf("got %d\n%s, want\n%s", status, text, want)
	}
}

// The figures are of all counters. A caller that is limited to prefixes does not see them: they would tell it of the others.
func TestOverviewOfALimitedCaller(t *testing.T) {
	t.Parallel()
	status, text, _ := ask(t, wholeServices(), api.Config{Roles: []string{"reader"}}).of(t, "page:").call(t, "GET", "/v1/overview", "")
	const want = `{"roles":["reader"],"aggregators":2,"status":"degraded","lag":0.25,"increments_per_second":null,"commits_per_second":null,"increments_per_write":null,"as_of":"NOW"}`
	if text = asOfNow.ReplaceAllString(text, `"as_of":"NOW"`); status != 200 || strings.TrimSpace(text) != want {
		t.Errorf("got %d %s, want %s", status, text, want)
	}
}

func TestOverviewOfAnUnknownPipeline(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		want  string
		ready func(context.Context) (string, error)
	}{
		{"ready", nil},
		{"ready", func(context.Context) (string, error) { return "", nil }},
		{"not ready", func(context.Context) (string, error) { return "", errors.New("store: secret address") }},
		{"degraded", func(context.Context) (string, error) { return "cache: secret address", nil }},
	} {
		status, text, _ := ask(t, api.Services{Reader: &fakeReader{}, Ready: tc.ready}, api.Config{Roles: []string{"reader"}}).call(t, "GET", "/v1/overview", "")
		text = asOfNow.ReplaceAllString(text, `"as_of":"NOW"`)
		const rest = `"lag":null,"increments_per_second":null,"commits_per_second":null,"increments_per_write":null,"as_of":"NOW",` +
			`"since_start":{"increments":0,"writes":0,"increments_per_write":null,"duplicates":0,"dead_letters":0},"busiest":[],"at_limit":[]`
		if status != 200 || !strings.Contains(text, `"status":"`+tc.want+`",`+rest) {
			t.Errorf("got %d %s, want the status %s and %s", status, text, tc.want, rest)
		}
	}
}
