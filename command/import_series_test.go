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
	// Without --series, too, each row counts at its own time, and a row without one counts now.
	late := time.Now().UTC().Add(-3 * time.Hour).Truncate(15 * time.Minute).Format(time.RFC3339)
	path = importFile(t, "late.csv", "counter,delta,time\npage:/late,1000000,"+late+"\npage:/late,1,\n")
	if got := try(t, env, "import", path); got.code != 0 {
		t.Errorf("got %+v", got)
	}
	if got := try(t, env, "series", "page:/late", "--step", "15m", "--last", "4h"); !strings.Contains(got.out, late+"\t1000000\t") || strings.Count(got.out, "\t1\t") != 1 {
		t.Errorf("got rows\n%s%s\nwant 1000000 in that of %s, and 1 in another", got.out, got.errOut, late)
	}
}

// A period becomes complete only if all its rows are counted.
func TestImportCompletesWhatItHas(t *testing.T) {
	t.Parallel()
	env := newSeriesServer(t)
	if got := try(t, env, "rule", "add", "series", "page:*=15m:400d"); got.code != 0 {
		t.Fatalf("got %+v", got)
	}
	day := time.Now().UTC().Add(-300 * 24 * time.Hour).Truncate(24 * time.Hour)
	at, next, old := day.Format(time.RFC3339), day.Add(24*time.Hour).Format(time.RFC3339), day.Add(-101*24*time.Hour).Format(time.RFC3339)
	const left = "1 of the rows left out (REJECTS) may be of the period of --complete, and nothing was counted"
	for _, tc := range []struct{ name, rows, want, totals string }{
		{"unreadable", "page:/a,1,i," + at + "\npage:/a,1,j,yesterday\n", left, ""},
		{"of the period", "page:/a,1,i," + at + "\npage:/a,2,i," + at + "\n", left, ""},
		{"without a period", "page:/a,1,i," + at + "\n", "", "1\tpage:/a\n"},
		{"in conflict", "page:/a,2,i," + at + "\npage:/a,3,j," + at + "\n", `1 of 2 rows (counter "page:/a", id "i"); so the period of --complete is not stored`, "4\tpage:/a\n"},
		{"elsewhere", "page:/a,1,i," + at + "\npage:/a,1,k," + old + "\n", "", "4\tpage:/a\n"},
	} {
		path := importFile(t, "a.csv", "counter,delta,id,time\n"+tc.rows)
		args, want := []string{"import", "--series", path, "--skip-bad", path + ".rejects"}, strings.ReplaceAll(tc.want, "REJECTS", path+".rejects")
		if tc.name != "without a period" {
			args = append(args, "--complete", at+"/"+next)
		}
		if got := try(t, env, args...); got.code != min(len(want), 1) || !strings.Contains(got.errOut, want) {
			t.Errorf("%s: got %+v, want %q", tc.name, got, want)
		}
		wantTotals(t, env, "page:", tc.totals)
		if got := try(t, env, "rule", "list"); strings.Contains(got.out, ", and "+at) != (tc.name == "elsewhere") {
			t.Errorf("%s: got rules %s", tc.name, got.out)
		}
	}
}
