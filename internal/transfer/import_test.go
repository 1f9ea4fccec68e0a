package transfer

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countmill/countmill/client"
	"github.com/countmill/countmill/store"
)

// silent shows no progress.
type silent struct{}

func (silent) Add(_, _ int64) {}
func (silent) Wait(string)    {}
func (silent) Stop()          {}

func noProgress(_, _ string, _ int64) Progress { return silent{} }

func rowsFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "rows.csv")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestRowsThatBecomeTooOldWhileTheyAreSent(t *testing.T) {
	t.Parallel()
	for oldest, want := range map[time.Duration]string{0: "Run it again with the same rows", 2 * time.Hour: "Put rows that are not counted into a file of their own"} {
		im := &importer{Import: Import{Window: time.Hour}, oldest: time.Now().Add(-oldest)}
		im.accepted.Store(1)
		if err := im.stopped(t.Context(), errors.New("refused")); !strings.Contains(err.Error(), ": refused. "+want) {
			t.Errorf("rows %s old: got %v, want %q", oldest, err, want)
		}
	}
}

func TestSpoolHasALimit(t *testing.T) {
	t.Parallel()
	f, err := spool(t.Context(), strings.NewReader("1234"), 4)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if f, err := spool(t.Context(), strings.NewReader("12345"), 4); err == nil || !strings.Contains(err.Error(), "limit: 4 bytes") {
		t.Errorf("spool beyond its limit: got %v, %v", f, err)
	}
}

// The latest rules hold in less time than an import waits.
func TestImportWaitsForAnyNewRule(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		now := time.Now().Add(time.Second)
		s, err := store.Settings{}.ChangeRules(store.RuleChange{Kind: store.KindSeries, Pattern: "a", Keep: store.Retention{Quarters: 24 * time.Hour}}, now, store.RulesSettle)
		if err != nil {
			t.Fatal(err)
		}
		h := &history{begin: s.Rules.Series[0].Since}
		if err := h.wait(t.Context(), io.Discard); err != nil || time.Now().Before(h.begin) {
			t.Errorf("a rule that holds %s from now on: got %v", h.begin.Sub(now), err)
		}
	})
}

// In an import of history each request has the rows of one quarter hour and says so. Rows must have times and
// rules, also years ago, and the newest rule must be known everywhere.
func TestImportHistory(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var asked []string
	begin := time.Now().Add(-time.Minute) // of the rule for page:*
	old := begin.Add(-time.Hour)          // of the others
	var ahead time.Duration               // of the server's clock
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/rules" {
			w.Header().Set("Date", time.Now().Add(ahead).UTC().Format(http.TimeFormat))
			fmt.Fprintf(w, `{"version":1,"series":[{"pattern":"gone","keep":"15m:3660d","begin":%q,"ended":%[1]q},{"pattern":"page:short","keep":"15m:900d","begin":%[1]q,"ended":null},{"pattern":"old","keep":"15m:2000d","begin":%[1]q,"ended":null},{"pattern":"page:*","keep":"15m:3660d","begin":%q,"ended":null},{"pattern":"of*","keep":"15m:1d","begin":%[1]q,"ended":null}]}`,
				old.Format(time.RFC3339), begin.Format(time.RFC3339))
			return
		}
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		asked = append(asked, fmt.Sprintf("%s %.8s %d rows, %d timed", r.URL.Query().Get("at"), r.Header.Get("Idempotency-Key")+"-without", strings.Count(string(body), "\n"), strings.Count(string(body), `"time"`)))
		w.WriteHeader(http.StatusAccepted)
		fmt.Fprintf(w, `{"accepted":%d}`, strings.Count(string(body), "\n"))
	}))
	defer server.Close()
	cl, err := client.New(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	day := time.Now().UTC().Add(-1000 * 24 * time.Hour).Truncate(24 * time.Hour)
	row := func(counter, id string, after time.Duration) string {
		return fmt.Sprintf("%s,1,%s,%s\n", counter, id, day.Add(after).Format(time.RFC3339))
	}
	var stderr strings.Builder
	run := func(history bool, path string) error {
		im := Import{Client: cl, Timeout: time.Minute, Window: time.Hour, Name: path, Form: Form{Format: CSV, Series: history}, Stderr: &stderr, Progress: noProgress}
		_, err := im.Run(t.Context())
		return err
	}
	const header = "counter,delta,id,time\n"
	// A prefix keeps page:short for longer than its own rule.
	path := rowsFile(t, header+row("page:a", "", 0)+row("page:short", "", 14*time.Minute)+row("page:a", "x", 15*time.Minute)+row("page:a", "", 29*time.Minute))
	if err := run(true, path); err != nil {
		t.Fatal(err)
	}
	slices.Sort(asked) // blocks are sent at the same time
	first, second := day.Format(time.RFC3339), day.Add(15*time.Minute).Format(time.RFC3339)
	if want := []string{first + " import-3 2 rows, 1 timed", second + " -without 1 rows, 1 timed", second + " import-3 1 rows, 1 timed"}; !slices.Equal(asked, want) {
		t.Errorf("got requests %q, want %q", asked, want)
	}
	if err := run(false, path); err == nil || !strings.Contains(err.Error(), `began with --format csv --series, and not with --format csv (`) {
		t.Errorf("again without --series: got %v", err)
	}
	asked = nil
	for name, tc := range map[string]struct{ rows, want string }{
		"no time":          {"page:a,1,,\n", "time is missing"},
		"the future":       {row("page:a", "", 1001*24*time.Hour), "not in the past"},
		"ten years ago":    {row("page:a", "", -2700*24*time.Hour), "not in the past"},
		"older than kept":  {row("page:a", "", 0) + row("old", "", -1001*24*time.Hour), `line 3: time ` + day.Add(-1001*24*time.Hour).Format(time.RFC3339) + ` is older than the rule for "old" keeps of counter "old" (limit: 15m:2000d); 1 of 2 rows`},
		"older than a day": {row("of", "", 0), `is older than the rule for "of*" keeps of counter "of" (limit: 15m:1d)`},
		"no rule":          {row("page:a", "", 0) + row("other", "", 0), `no rule keeps a series of "other"`},
		"a rule that went": {row("gone", "", 0), `no rule keeps a series of "gone"`},
	} {
		if err := run(true, rowsFile(t, header+tc.rows)); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: got %v, want %q", name, err, tc.want)
		}
	}
	for _, ahead = range []time.Duration{0, -2 * time.Hour} {
		begin = time.Now().Add(ahead + time.Hour)
		if err := run(true, rowsFile(t, header+row("old", "", 0)+row("page:a", "", 0)+row("old", "", time.Minute))); err == nil || !strings.Contains(err.Error(), `the rule for "page:*" holds from`) {
			t.Errorf("a rule of the future, with a clock that is %s ahead: got %v", ahead, err)
		}
	}
	if len(asked) > 0 {
		t.Errorf("sent %q, want nothing", asked)
	}
	begin, ahead = time.Now().Add(2*time.Second), 0
	stderr.Reset()
	if err := run(true, rowsFile(t, header+row("page:a", "", 0))); err != nil || time.Now().Before(begin.Truncate(time.Second)) {
		t.Errorf("a rule of the next second: got %v %s before it holds", err, time.Until(begin))
	}
	if text := stderr.String(); text != "" && text != fmt.Sprintf("countmill: waiting: the rule for \"page:*\" holds from %s on\n", begin.UTC().Format(time.RFC3339)) {
		t.Errorf("got %q, want the reason to wait, once", text)
	}
}
