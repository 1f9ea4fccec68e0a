package archtest

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/constant"
	"go/token"
	"go/types"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const (
	problems = "docs/reference/errors.md"
	limits   = "docs/reference/limits.md"
)

// The page of errors has every problem type of the code with its status, and the types of the OpenAPI
// document are the same.
func TestErrorsReference(t *testing.T) {
	t.Parallel()
	var coded, shown []string
	for _, s := range sources(t) {
		if s.isTest() {
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok || len(call.Args) != 4 || !strings.HasSuffix(types.ExprString(call.Fun), "NewProblem") {
				return true
			}
			word, known := text(call.Args[1])
			if !known {
				t.Errorf("%s: the type of a problem is no literal", s.at(call.Pos()))
			}
			coded = append(coded, word+" "+status(t, types.ExprString(call.Args[0])))
			return true
		})
	}
	for _, row := range regexp.MustCompile("(?m)^\\| `([a-z-]+)` \\| (\\d+) \\|").FindAllStringSubmatch(read(t, problems), -1) {
		shown = append(shown, row[1]+" "+row[2])
	}
	slices.Sort(coded)
	slices.Sort(shown)
	if diff := cmp.Diff(slices.Compact(coded), shown); diff != "" {
		t.Errorf("the problem types of %s are not those of the code (-code +page):\n%s", problems, diff)
	}
	var doc apiDocument
	if err := json.Unmarshal([]byte(read(t, openAPI)), &doc); err != nil {
		t.Fatal(err)
	}
	for _, one := range doc.Components.Schemas.of["Problem"].Properties.of["type"].Enum {
		word := strings.TrimPrefix(fmt.Sprint(one), "urn:countmill:problem:")
		if !slices.ContainsFunc(shown, func(row string) bool { return strings.HasPrefix(row, word+" ") }) {
			t.Errorf("%s has the problem type %s, which is not in %s", openAPI, word, problems)
		}
	}
}

// status is the number of an http.StatusX.
func status(t *testing.T, name string) string {
	t.Helper()
	for code := 400; code < 600; code++ {
		if strings.ReplaceAll("http.Status"+http.StatusText(code), " ", "") == name {
			return fmt.Sprint(code)
		}
	}
	t.Errorf("%s is no status", name)
	return ""
}

// limitRows are rows of the page of limits, with constants of the code that they hold. The value of
// a constant comes in the form of the format.
var limitRows = []struct{ row, format, constant string }{
	{"| counter name |", "1 to %d bytes", "MaxCounterName"},
	{"| id, `Idempotency-Key` |", "1 to %d bytes", "MaxID"},
	{"| time |", "at most %d minutes ahead", "MaxAhead / time.Minute"},
	{"| deduplication window |", "%d hour to", "MinWindow / time.Hour"},
	{"| deduplication window |", "to %d days", "MaxWindow / (24 * time.Hour)"},
	{"| shards of a counter |", "1 to %d;", "MaxShards"},
	{"| a dead letter's time |", "at most %d hours ahead", "MaxAhead / time.Hour"},
	{"| body of `POST /v1/increments`", "| %d MiB |", "MaxBody >> 20"},
	{"| body of `POST /v1/batches`", "| %d KiB |", "MaxBatch >> 10"},
	{"| time of a batch over HTTP |", "at most %d hour ahead", "MaxBatchAhead / time.Hour"},
	{"| body of the other calls |", "| %d KiB |", "smallBody >> 10"},
	{"| counters of `GET /v1/totals`", "1 to %d |", "maxQuery"},
	{"| counters of `POST /v1/totals`", "1 to %d |", "maxBodyCounters"},
	{"| page of `GET /v1/counters` |", "1 to %d counters", "MaxPage"},
	{"| page of `GET /v1/counters` |", "%d by default", "defaultLimit"},
	{"| answer of `GET /metrics/counters` |", "1 to %d counters", "maxMetrics"},
	{"| answer of `GET /metrics/counters` |", "%d by default", "defaultMetrics"},
	{"| page of `GET /v1/dead-letters` |", "%d MiB", "maxRead >> 20"},
	{"| keys of `POST /v1/dead-letters/replay`", "1 to %d |", "MaxDeadLetterKeys"},
	{"| `limit` of `GET /v1/watch?prefix=` |", "1 to %d counters", "maxPrefixLimit"},
	{"| `limit` of `GET /v1/watch?prefix=` |", "%d by default", "defaultLimit"},
	{"| a watcher that reads nothing |", "%d KiB", "chunkSize >> 10"},
	{"| `interval` of `GET /v1/watch?counter=` |", "to %d s", "maxInterval / time.Second"},
	{"| label of a badge |", "at %d letters", "badgeLabel"},
	{"| busiest counters of `GET /v1/overview` |", "| %d |", "MaxBusiest"},
	{"| `countmill backup`; a repeat continues it |", "| %d minutes |", "backupTimeout / time.Minute"},
	{"| tokens in a file |", "| %d |", "maxTokens"},
	{"| file |", "| %d MiB |", "maxFile >> 20"},
	{"| prefixes of a token |", "| %d |", "maxPrefixes"},
	{"| `increments_per_second`", "up to %d |", "maxPerSecond"},
	{"| `new_counters_per_hour`", "up to %d |", "maxNewCounters"},
	{"| names of `countmill get` |", "| %d |", "maxNames"},
	{"| names of `countmill watch` |", "| %d |", "maxWatched"},
	{"| keys of `countmill dead` |", "| %d in one", "maxDeadKeys"},
	{"| standard input of", "%d GiB", "maxSpool >> 30"},
	{"| message of countmill |", "| %d KiB |", "MaxBatch >> 10"},
	{"| entries of a part |", "| %d |", "MaxEntries"},
	{"| `--count-within` |", "to %d minute", "MaxCountWithin / time.Minute"},
	{"| `--shard-rate` |", "to %d commits", "maxShardRate"},
	{"| clocks of an aggregator", "%d minute apart", "maxSkew / time.Minute"},
}

// Limits of the page are constants of the code. A constant is known by its name: one of the constants
// of that name has to have the value.
func TestLimitsReference(t *testing.T) {
	t.Parallel()
	values := constants(t)
	page := strings.Split(strings.ReplaceAll(read(t, limits), ",", ""), "\n")
	for _, l := range limitRows {
		i := slices.IndexFunc(page, func(line string) bool { return strings.HasPrefix(line, strings.ReplaceAll(l.row, ",", "")) })
		if i < 0 {
			t.Errorf("%s has no row %q", limits, l.row)
			continue
		}
		name := regexp.MustCompile(`^\w+`).FindString(l.constant)
		if len(values[name]) == 0 {
			t.Errorf("there is no constant %s for the row %q", name, l.row)
		}
		var wants []string
		for _, value := range values[name] {
			wants = append(wants, fmt.Sprintf(l.format, number(t, "("+value+")"+strings.TrimPrefix(l.constant, name))))
		}
		if !slices.ContainsFunc(wants, func(want string) bool { return strings.Contains(page[i], want) }) {
			t.Errorf("%s has the row %q; by %s it says one of %q", limits, page[i], name, wants)
		}
	}
}

// constants are the expressions of the constants of the product, by name.
func constants(t *testing.T) map[string][]string {
	t.Helper()
	all := map[string][]string{}
	for _, s := range product(t) {
		ast.Inspect(s.file, func(n ast.Node) bool {
			if v, ok := n.(*ast.ValueSpec); ok && len(v.Names) == len(v.Values) {
				for i, name := range v.Names {
					all[name.Name] = append(all[name.Name], types.ExprString(v.Values[i]))
				}
			}
			return true
		})
	}
	return all
}

// number is the value of a constant expression, 0 where it is not one.
func number(t *testing.T, expression string) int64 {
	t.Helper()
	units := strings.NewReplacer("time.Second", "1e9", "time.Minute", "60e9", "time.Hour", "3600e9", "time.Millisecond", "1e6")
	v, err := types.Eval(token.NewFileSet(), nil, token.NoPos, units.Replace(expression))
	if err != nil || v.Value == nil {
		return 0
	}
	f, _ := constant.Float64Val(v.Value)
	return int64(f)
}

// Metrics that documents name exist, and so do the log lines of the runbook.
func TestDocumentsNameWhatExists(t *testing.T) {
	t.Parallel()
	reference := read(t, metricsReference)
	for _, document := range documents(t, "docs/*.md", "docs/*/*.md") {
		for _, name := range regexp.MustCompile(`\bcountmill_[a-z_]+`).FindAllString(strings.ReplaceAll(read(t, document), "countmill.countmill_format", ""), -1) { // a table of PostgreSQL
			name = regexp.MustCompile(`_(bucket|sum|count)$`).ReplaceAllString(name, "")
			if !strings.Contains(reference, "`"+name+"`") {
				t.Errorf("%s names %s, which is not in %s", document, name, metricsReference)
			}
		}
	}
	said := map[string]bool{}
	for _, s := range product(t) {
		ast.Inspect(s.file, func(n ast.Node) bool {
			if l, ok := n.(*ast.BasicLit); ok {
				if value, ok := text(l); ok {
					said[value] = true
				}
			}
			return true
		})
	}
	seen := 0
	for _, document := range []string{runbook, readiness} {
		for _, line := range regexp.MustCompile("(?i)log lines?:? .*|\\| log line \\|.*\n.*\n(\\|.*\n)+").FindAllString(read(t, document), -1) {
			for _, quoted := range regexp.MustCompile("(?m)(?:[Ll]og lines?:? |^\\| |, )`([^`]*)`").FindAllStringSubmatch(line, -1) {
				seen++
				if !said[quoted[1]] {
					t.Errorf("%s has the log line %q, which no code writes", document, quoted[1])
				}
			}
		}
	}
	if seen < 10 {
		t.Errorf("found %d log lines only", seen)
	}
}
