package httpapi_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/countmill/countmill/internal/access/accesstest"
	"github.com/countmill/countmill/internal/httpapi"
	"github.com/countmill/countmill/reader"
	"github.com/countmill/countmill/store"
)

func busyReader() *fakeReader {
	return &fakeReader{
		pipeline: reader.Pipeline{
			Workers: 2, Lag: 250 * time.Millisecond, RatesKnown: true,
			Increments: 48_000, Entries: 900, Commits: 4, Entities: 120,
			Folded: 9000, Written: 60, Duplicates: 7, DeadLetters: 1,
		},
		busiest: []store.Busy{{Counter: "page:/home", Rate: 1200.0004}, {Counter: "shop:a", Rate: 3}, {Counter: "page:<script>", Rate: 1}},
	}
}

func TestOverview(t *testing.T) {
	t.Parallel()
	srv, _ := start(t, busyReader(), httpapi.Config{Roles: []string{"reader"}})
	status, text, _ := call(t, "GET", srv.URL+"/v1/overview", "")
	const want = `{"roles":["reader"],"aggregators":2,"status":"ready","lag":0.25,` +
		`"increments_per_second":48000,"commits_per_second":4,"increments_per_write":400,` +
		`"since_start":{"increments":9000,"writes":60,"increments_per_write":150,"duplicates":7,"dead_letters":1},"last_backup":null,` +
		`"busiest":[{"counter":"page:/home","moved_per_second":1200},{"counter":"shop:a","moved_per_second":3},{"counter":"page:<script>","moved_per_second":1}]}`
	if status != 200 || text != want {
		t.Errorf("got %d\n%s, want\n%s", status, text, want)
	}
}

// A caller that is limited to prefixes sees the names that it may read, and no other.
func TestOverviewShowsOnlyTheCallersNames(t *testing.T) {
	t.Parallel()
	h, err := newReader(busyReader(), httpapi.Config{Roles: []string{"reader"}})
	if err != nil {
		t.Fatal(err)
	}
	status, text := as(t, accesstest.As(t, h, "pages", "page:"), "/v1/overview")
	if status != 200 || strings.Contains(text, "shop:a") || !strings.Contains(text, "page:/home") || !strings.Contains(text, "page:<script>") {
		t.Errorf("got %d %s, want the names that begin with page:", status, text)
	}
}

func TestOverviewOfAnUnknownPipeline(t *testing.T) {
	t.Parallel()
	for want, ready := range map[string]func(context.Context) (string, error){
		"not ready": func(context.Context) (string, error) { return "", errors.New("store: secret address") },
		"degraded":  func(context.Context) (string, error) { return "cache: secret address", nil },
	} {
		a := serve(t, httpapi.Services{Reader: &fakeReader{}, Ready: ready}, httpapi.Config{Roles: []string{"reader"}})
		status, text := as(t, a, "/v1/overview")
		const rest = `"lag":null,"increments_per_second":null,"commits_per_second":null,"increments_per_write":null,` +
			`"since_start":{"increments":0,"writes":0,"increments_per_write":null,"duplicates":0,"dead_letters":0},"last_backup":null,"busiest":[]}`
		if status != 200 || !strings.Contains(text, `"status":"`+want+`",`+rest) {
			t.Errorf("got %d %s, want the status %s and %s", status, text, want, rest)
		}
	}
}
