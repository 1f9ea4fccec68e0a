package command

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"reflect"
	"regexp"
	"strings"
	"sync"
	"testing"
)

// TestScopesOfCommands compares the table of commands in a page with what a server is asked by each command: every command that calls a
// server has a row, with the scope of its call.
func TestScopesOfCommands(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/howto/counters.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(page), "## Scopes and roles")
	said := make(map[string]string)
	for _, row := range regexp.MustCompile("(?m)^\\| (`[^|]*`) \\| [^|]* \\| (?:`(\\w+)`)?").FindAllStringSubmatch(table, -1) {
		for _, name := range strings.Split(row[1], ", ") {
			said[strings.Trim(name, "`")] = row[2]
		}
	}
	scopes := scopesOfCalls(t)
	for _, c := range program().Commands {
		verb := reflect.ValueOf(c.New()).Elem()
		if verb.Kind() != reflect.Struct || !verb.FieldByName("calling").IsValid() {
			continue
		}
		call := firstCall(t, c.Path, c.Args)
		want, known := scopes[call]
		if got, listed := said[c.Path]; !known || !listed || got != want {
			t.Errorf("%s calls %s, which needs the scope %q; the table of counters.md has %q (listed: %t)", c.Path, call, want, got, listed)
		}
	}
}

// scopesOfCalls are those of the document, by method and path.
func scopesOfCalls(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile("../internal/httpserver/openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		Paths map[string]map[string]struct{ Security []struct{ Bearer []string } }
	}
	if err := json.Unmarshal(text, &doc); err != nil {
		t.Fatal(err)
	}
	scopes := make(map[string]string)
	for path, methods := range doc.Paths {
		for method, op := range methods {
			scope := ""
			if len(op.Security) > 0 {
				scope = op.Security[0].Bearer[0]
			}
			scopes[strings.ToUpper(method)+" "+strings.Replace(path, "{name}", "a", 1)] = scope
		}
	}
	return scopes
}

// firstCall runs a command with arguments of some kind, and returns what a server is asked first.
func firstCall(t *testing.T, path, args string) string {
	t.Helper()
	var mu sync.Mutex
	var first string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if first == "" {
			first = r.Method + " " + r.URL.Path
		}
		w.WriteHeader(http.StatusNotFound)
	}))
	defer server.Close()
	with, special := map[string]string{
		"grow": "a 2", "rule add": "series a=15m:400d", "rule remove": "series a", "index create": "a --match a:{x} --group a:{x}", "watch": "a", "journal export": "a --from 2026-11-01 --to 2026-11-02", "journal erase": "a --yes",
		"dead discard": "a --yes", "import": importFile(t, "a.csv", "counter,delta\na,1\n"),
	}[path]
	if !special {
		with = strings.Repeat("a ", len(regexp.MustCompile(`(?:^| )[A-Z]`).FindAllString(args, -1)))
	}
	r := try(t, []string{"COUNTMILL_SERVER=" + server.URL}, append(strings.Fields(path), strings.Fields(with)...)...)
	if first == "" {
		t.Errorf("%s %s asked nothing: %s", path, with, r.errOut)
	}
	return first
}
