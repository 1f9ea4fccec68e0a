package command

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/countmill/countmill/embedded"
)

// newSeriesServer is countmill in a new directory. It says that its rules hold since an hour ago, so that an
// import does not wait until other processes know them.
func newSeriesServer(t *testing.T) (env []string) {
	t.Helper()
	db, err := embedded.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	begin := regexp.MustCompile(`"begin":"[^"]*"`)
	ago := fmt.Sprintf(`"begin":%q`, time.Now().Add(-time.Hour).UTC().Format(time.RFC3339))
	all := db.Handler()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v1/rules" {
			all.ServeHTTP(w, r)
			return
		}
		answer := httptest.NewRecorder()
		all.ServeHTTP(answer, r)
		fmt.Fprint(w, begin.ReplaceAllString(answer.Body.String(), ago))
	}))
	t.Cleanup(func() {
		server.Close()
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return []string{"COUNTMILL_SERVER=" + server.URL}
}

// What an import counts is in the total and in a row. Rows that the rule does not keep are in neither.
func TestImportSeriesIntoUp(t *testing.T) {
	t.Parallel()
	env := newSeriesServer(t)
	if got := try(t, env, "rule", "add", "series", "page:*=15m:400d"); got.code != 0 {
		t.Fatalf("got %+v", got)
	}
	day := time.Now().UTC().Add(-300 * 24 * time.Hour).Truncate(24 * time.Hour)
	good := fmt.Sprintf("counter,delta,time\npage:/home,120,%s\npage:/home,95,%s\n", day.Add(9*time.Hour).Format(time.RFC3339), day.Add(9*time.Hour+15*time.Minute).Format(time.RFC3339))
	path := importFile(t, "good.csv", good)
	if want, got := (result{0, path + ": 2 rows are counted, each once\n", ""}), try(t, env, "import", "--series", path); got != want {
		t.Fatalf("got %+v, want %+v", got, want)
	}
	old := time.Now().UTC().Add(-401 * 24 * time.Hour).Format(time.RFC3339)
	why := fmt.Sprintf("line 4: time %s is older than the rule for %q keeps of counter %q (limit: 15m:400d)", old, "page:*", "page:/home")
	path = importFile(t, "old.csv", good+"page:/home,7,"+old+"\n")
	try(t, env, "import", "--series", path).wantError(t, 1, why+"; 1 of 3 rows cannot be counted, and nothing was")
	wantCurve := func(total string) {
		t.Helper()
		if got := try(t, env, "get", "page:/home"); got.code != 0 || got.out != total+"\n" {
			t.Errorf("got total %+v, want %s", got, total)
		}
		got := try(t, env, "series", "page:/home", "--step", "1d", "--last", "500d")
		if want := fmt.Sprintf("%s\t%s\t", day.Format(time.RFC3339), total); got.code != 0 || strings.Count(got.out, "\t0\t") != strings.Count(got.out, "\n")-1 || !strings.Contains(got.out, want) {
			t.Errorf("got rows\n%s%s\nwant one that is not 0: %s", got.out, got.errOut, want)
		}
	}
	wantCurve("215")
	rejects := path + ".rejects"
	if got := try(t, env, "import", "--series", path, "--skip-bad", rejects); got.code != 0 || !strings.Contains(got.out, "2 rows are counted, each once, 1 left out") {
		t.Errorf("got %+v", got)
	}
	if text, err := os.ReadFile(rejects); err != nil || !strings.Contains(string(text), old) {
		t.Errorf("got rejects %q, %v", text, err)
	}
	wantCurve("430")
}
