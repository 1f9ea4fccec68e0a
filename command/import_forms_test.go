package command

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// copyOf is a copy of an export in testdata, beside which an import may write.
func copyOf(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "import", name))
	if err != nil {
		t.Fatal(err)
	}
	return importFile(t, name, string(text))
}

// wantTotals compares the totals of all counters with a prefix.
func wantTotals(t *testing.T, env []string, prefix, want string) {
	t.Helper()
	if got := try(t, env, "ls", prefix); got.out != want {
		t.Errorf("got totals\n%s%s, want\n%s", got.out, got.errOut, want)
	}
}

// Exports of web analytics become totals by one command, however old they are: the column of dates is not used. Another
// column of the same file becomes other counters, with a state of its own.
func TestImportOfPages(t *testing.T) {
	t.Parallel()
	env := []string{"COUNTMILL_SERVER=" + up(t, t.TempDir()).url}
	path := copyOf(t, "pages.csv")
	views := []string{"import", path, "--columns", "counter=page path,delta=views", "--prefix", "page:"}
	for range 2 {
		if got := try(t, env, views...); got.code != 0 || !strings.HasPrefix(got.out, path+": 5 rows are counted, each once") {
			t.Fatalf("got %+v", got)
		}
	}
	const pages = "215\tpage:/\n1\tpage:/@sale\n19\tpage:/shoes/red\n"
	wantTotals(t, env, "page:", pages)
	users := []string{"import", path, "--columns", "counter=Page path,delta=Active users", "--prefix", "users:"}
	try(t, env, users...).wantError(t, 1, `began with --format csv --columns "counter=page path,delta=views" --prefix "page:", and not with --format csv --columns`)
	wantTotals(t, env, "users:", "")
	if got := try(t, env, append(users, "--state", path+".users")...); got.code != 0 {
		t.Errorf("got %+v", got)
	}
	wantTotals(t, env, "users:", "141\tusers:/\n1\tusers:/@sale\n16\tusers:/shoes/red\n")
	wantTotals(t, env, "page:", pages)
}

// An export with tabs becomes curves by one command.
func TestImportOfURLs(t *testing.T) {
	t.Parallel()
	env := newSeriesServer(t)
	if got := try(t, env, "rule", "add", "series", "page:*=15m:3660d"); got.code != 0 {
		t.Fatalf("got %+v", got)
	}
	path := copyOf(t, "urls.tsv")
	all := []string{"import", path, "--series", "--columns", "counter=label,delta=nb_hits,time=date", "--prefix", "page:", "--tz", "Europe/Berlin"}
	want := `{"counter":"page:/","delta":120,"time":"2025-10-24T22:00:00Z"}
{"counter":"page:/","delta":95,"time":"2025-10-25T22:00:00Z"}
{"counter":"page:/über-uns","delta":7,"time":"2025-10-25T22:00:00Z"}
{"counter":"page:/über-uns","delta":12,"time":"2025-10-26T23:00:00Z"}
`
	if got := try(t, env, append(all, "--dry-run")...); got != (result{0, want, "countmill: 4 rows would be counted; nothing was\n"}) {
		t.Fatalf("got %+v", got)
	}
	wantTotals(t, env, "page:", "")
	for range 2 {
		if got := try(t, env, all...); got.code != 0 {
			t.Fatalf("got %+v", got)
		}
	}
	wantTotals(t, env, "page:", "215\tpage:/\n19\tpage:/über-uns\n")
	wantDays := func(want string) {
		t.Helper()
		got := try(t, env, "series", "page:/über-uns", "--from", "2025-10-25", "--to", "2025-10-28", "--step", "1d", "--tz", "Europe/Berlin")
		var days []string
		for line := range strings.Lines(got.out) {
			days = append(days, strings.Join(strings.Split(line, "\t")[1:3], " "))
		}
		if strings.Join(days, ", ") != want {
			t.Errorf("got %+v, want %s", got, want)
		}
	}
	wantDays("0 partial, 7 partial, 12 partial")
	// A later run may say which period the file completes, and extend that of an earlier one.
	for _, period := range []string{"2025-10-26/2025-10-28", "2025-10-25/2025-10-27", "2025-10-26/2025-10-27"} {
		if got := try(t, env, append(all, "--complete", period)...); got.code != 0 {
			t.Fatalf("got %+v", got)
		}
	}
	wantDays("0 whole, 7 whole, 12 whole")
	wantTotals(t, env, "page:", "215\tpage:/\n19\tpage:/über-uns\n")
	if got := try(t, env, "rule", "list"); !strings.Contains(got.out, ", and 2025-10-24T22:00:00Z to 2025-10-27T23:00:00Z") {
		t.Errorf("got %+v", got)
	}
	try(t, env, append(all, "--complete", "2024-01-01/2024-02-01")...).wantError(t, 1, `the rule for "page:*" has a complete period already, from 2025-10-24T22:00:00Z to 2025-10-27T23:00:00Z`)
	for _, period := range []string{"2025-10-26", "2025-10-26/2025-10-26", "2025-10-26/2199-01-01", "x/y"} {
		try(t, env, append(all, "--complete", period)...).wantError(t, 2, "--complete: must be")
	}
	try(t, env, "import", path, "--complete", "2025-10-26/2025-10-27").wantError(t, 2, "--complete is given without --series")
}

// A dry run counts and remembers nothing.
func TestDryRun(t *testing.T) {
	t.Parallel()
	env := []string{"COUNTMILL_SERVER=" + up(t, t.TempDir()).url}
	path := importFile(t, "a.csv", "counter,delta\npage:/a,1\npage:/b,x\npage:/a,1\n")
	all := []string{"import", path}
	try(t, env, all...).wantError(t, 1, `line 3: delta "x" is not an integer`)
	all = append(all, "--skip-bad", path+".rejects")
	row := `{"counter":"page:/a","delta":1}` + "\n"
	if got := try(t, env, append(all, "--dry-run")...); got != (result{0, row + row, "countmill: 2 rows would be counted, 1 left out and written to " + path + ".rejects; nothing was\n"}) {
		t.Errorf("got %+v", got)
	}
	wantTotals(t, env, "", "")
	if left, err := os.ReadDir(filepath.Dir(path)); err != nil || len(left) != 2 {
		t.Errorf("a dry run left %v, %v; want the file and the rejects", left, err)
	}
	for range 2 {
		if got := try(t, env, all...); got.code != 0 || !strings.HasPrefix(got.out, path+": 2 rows are counted, each once, 1 left out") {
			t.Errorf("got %+v", got)
		}
	}
	wantTotals(t, env, "", "2\tpage:/a\n")
}
