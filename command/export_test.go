package command

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func page(next string, totals ...string) http.HandlerFunc {
	var all []string
	for i, total := range totals {
		counter, n, _ := strings.Cut(total, "=")
		all = append(all, fmt.Sprintf(`{"counter":%q,"total":%s,"as_of":"2026-01-02T15:04:0%d.000000Z"}`, counter, n, 5-i))
	}
	return answer(200, fmt.Sprintf(`{"totals":[%s],"next_page_token":%q,"lag":0}`, strings.Join(all, ","), next))
}

func TestExportPages(t *testing.T) {
	t.Parallel()
	script := []http.HandlerFunc{page("t&1", "a=1", "b,\"=-2"), answer(503, "{}"), cut, page("t2", "c=0", "d=9007199254740992"), page("", "e=5")}
	f := newFakeServer(t, script...)
	var out, errOut bytes.Buffer
	code := run(t.Context(), host{argv: []string{"export", "--server", f.URL}, stdout: &out, stderr: &errOut})
	if want := "counter,delta\na,1\n\"b,\"\"\",-2\nd,9007199254740991\nd,1\ne,5\n"; code != 0 || out.String() != want {
		t.Errorf("got exit %d and %q, want %q", code, out.String(), want)
	}
	if want := "countmill: 4 counters in 5 rows, 1 left out as their total is 0, as of 2026-01-02T15:04:04.000000Z to 2026-01-02T15:04:05.000000Z\n"; !strings.HasSuffix(errOut.String(), want) {
		t.Errorf("got %q, want %q", errOut.String(), want)
	}
	for i, want := range []string{"limit=1000", "limit=1000&page_token=t%261", "limit=1000&page_token=t%261", "limit=1000&page_token=t%261", "limit=1000&page_token=t2"} {
		if i >= len(f.paths) || f.paths[i] != "/v1/counters?"+want {
			t.Fatalf("asked %q, want %q at %d", f.paths, want, i)
		}
	}
	again := newFakeServer(t, page("", "a=1"))
	if got := try(t, nil, "export", "a b:", "--json", "--server", again.URL); got.out != "{\"counter\":\"a\",\"delta\":1}\n" || again.paths[0] != "/v1/counters?limit=1000&prefix=a+b%3A" {
		t.Errorf("got %+v, asked %q", got, again.paths)
	}
}

func TestExportToAFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "totals.ndjson")
	f := newFakeServer(t, page("t", "a=1"), answer(400, `{"detail":"what token?"}`), page("", "a=1"))
	try(t, nil, "export", "--output", path, "--server", f.URL).wantError(t, 1, "the export is not whole: what token? (HTTP 400)")
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("a stopped export left %v, %v", left, err)
	}
	if got := try(t, nil, "export", "--output", path, "--server", f.URL); got.code != 0 || got.out != "" {
		t.Errorf("got %+v", got)
	}
	if text, err := os.ReadFile(path); string(text) != "{\"counter\":\"a\",\"delta\":1}\n" {
		t.Errorf("got %q, %v", text, err)
	}
	plain := filepath.Join(dir, "plain")
	if f, err := os.OpenFile(plain, os.O_CREATE, 0o666); err != nil || f.Close() != nil {
		t.Fatal(err)
	}
	for mode, like := range map[os.FileMode]string{0o666: plain, 0o600: "", 0o640: ""} {
		other := filepath.Join(dir, mode.String()+".csv")
		if like == "" {
			write(t, other, "")
			if err := os.Chmod(other, mode); err != nil {
				t.Fatal(err)
			}
			like = other
		}
		before, err := os.Stat(like)
		if err != nil {
			t.Fatal(err)
		}
		got := try(t, nil, "export", "--output", other, "--server", f.URL)
		if after, err := os.Stat(other); err != nil || got.code != 0 || after.Mode() != before.Mode() || after.Size() == 0 {
			t.Errorf("got %+v and a file %v, %v, want mode %s", got, after, err, before.Mode())
		}
	}
}

func TestExportSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	overflowed := newFakeServer(t, answer(200, `{"totals":[],"overflowed":["huge"],"lag":0}`))
	got := try(t, nil, "export", "--server", overflowed.URL)
	if got.code != 1 || got.out != "counter,delta\n" || !strings.Contains(got.errOut, `1 counter left out, because of a total that does not fit 64 bits: ["huge"]`) {
		t.Errorf("overflow: got %+v", got)
	}
	for body, want := range map[string]string{
		"<html>": "is that a countmill?",
		"{}":     "is that a countmill?",
		`{"totals":[{"counter":"a","total":9223372036854775808}]}`: "something else than a page of counters",
	} {
		f := newFakeServer(t, answer(200, body))
		if got := try(t, nil, "export", "--server", f.URL); got.code != 1 || !strings.Contains(got.errOut, want) {
			t.Errorf("%s: got %+v, want %q", body, got, want)
		}
	}
	try(t, nil, "export", "a", "b").wantError(t, 2, "name one PREFIX at most")
	try(t, nil, "export", "--output", "x.txt").wantError(t, 2, "does not end in .csv")
	try(t, nil, "export", "--output", "/no/such/x.csv", "--server", overflowed.URL).wantError(t, 1, "no such file")
}

// export | import is the same totals elsewhere, in both formats.
func TestExportIsImportedElsewhere(t *testing.T) {
	t.Parallel()
	from := up(t, t.TempDir())
	path := importFile(t, "a.ndjson", `{"counter":"page:a,\"b\"","delta":9007199254740991}
{"counter":"page:a,\"b\"","delta":9007199254740991}
{"counter":"page:ünï","delta":-5}
{"counter":"other"}
`)
	if got := try(t, nil, "import", path, "--server", from.url); got.code != 0 {
		t.Fatalf("got %+v", got)
	}
	for _, delta := range []string{"1", "-1"} {
		try(t, nil, "incr", "page:zero", delta, "--server", from.url)
	}
	for _, format := range []string{"csv", "ndjson"} {
		to := up(t, t.TempDir())
		out := filepath.Join(t.TempDir(), "totals."+format)
		for range 2 { // the same file the second time: it is counted once
			if got := try(t, nil, "export", "page:", "--output", out, "--server", from.url); got.code != 0 || !strings.Contains(got.errOut, "2 counters in 3 rows, 1 left out") {
				t.Errorf("%s: export: got %+v", format, got)
			}
			if got := try(t, nil, "import", out, "--server", to.url); got.code != 0 {
				t.Errorf("%s: import: got %+v", format, got)
			}
		}
		got := try(t, nil, "get", "page:a,\"b\"", "page:ünï", "page:zero", "other", "--server", to.url)
		if want := "18014398509481982\tpage:a,\"b\"\n-5\tpage:ünï\n0\tpage:zero\n0\tother\n"; got.out != want {
			t.Errorf("%s: got %q, want %q", format, got.out, want)
		}
	}
}
