package archtest

import (
	"fmt"
	"go/ast"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const metricsReference = "docs/reference/metrics.md"

// A metric is one name on /metrics or /metrics/counters, as the code has it.
type metric struct{ name, kind, labels, help string }

// metricGroups are the sections of the page: the functions whose metrics they hold, and which
// processes show them.
var metricGroups = []struct{ title, of, functions string }{
	{"Every process", "`/metrics` also has the `go_*` and `process_*` metrics of Prometheus's Go client.", "buildInfo"},
	{"Publisher", "`countmill publisher` and `countmill up`.", "publisherSamples"},
	{"Aggregator", "`countmill aggregator` and `countmill up`.", "aggregatorSamples lagSamples foldDurations unseenSamples"},
	{"Reader", "`countmill reader` and `countmill up`.", "readerSamples pipelineSamples totalAges"},
	{"Changes of counters", "`countmill reader` and `countmill up`.", "adminSamples"},
	{"Sequences", "`countmill aggregator`, `countmill reader` and `countmill up`.", "sequenceSamples"},
	{"Broker", "`countmill aggregator` with `nats:` or `pubsub:`. With `pubsub:` the last one needs `dead_letter=` in `--bus`.", "busSamples intakeSamples"},
	{"Indexer", "`countmill index work` and `countmill up`: [groups](../howto/groups.md).", "indexerSamples"},
	{"Journal", "`countmill aggregator` and `countmill up`, after the first look: [journal](../howto/journal.md). A process looks each hour, and when it writes or changes a rule.", "journalSamples"},
	{"Disk", "`countmill up` with `pebble:`.", "diskSamples spaceSamples"},
	{"Connections", "`countmill aggregator`, `countmill reader` and `countmill up` with `--store postgres://`.", "poolSamples"},
	{"Backups", "`countmill up --backup-root PLACE`.", "backupSamples"},
	{"Tokens", "Every process with `--tokens`.", "accessSamples"},
	{"Totals", "`GET /metrics/counters` of `countmill reader` and `countmill up`: [monitor](../howto/monitor.md#totals-in-prometheus).", "counterMetrics"},
}

// The page of metrics has every metric that the code makes, with its type, labels and help.
// `go test ./internal/testing/archtest -run TestMetricsReference -update` writes it.
func TestMetricsReference(t *testing.T) {
	t.Parallel()
	found := metrics(t)
	var b strings.Builder
	b.WriteString(metricsIntroduction)
	for _, g := range metricGroups {
		fmt.Fprintf(&b, "\n## %s\n\n%s\n\n| metric | type, labels | |\n| --- | --- | --- |\n", g.title, g.of)
		for _, function := range strings.Fields(g.functions) {
			for _, m := range found[function] {
				fmt.Fprintf(&b, "| `%s` | %s | %s |\n", m.name, strings.TrimSuffix(m.kind+", "+m.labels, ", "), m.help)
			}
			delete(found, function)
		}
	}
	for function, all := range found {
		t.Errorf("metrics of %s are in no section of %s: add it to metricGroups: %v", function, metricsReference, all)
	}
	if *update {
		if err := os.WriteFile(filepath.Join(root, metricsReference), []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(strings.Split(b.String(), "\n"), strings.Split(read(t, metricsReference), "\n")); diff != "" {
		t.Errorf("%s is not what the code has; run this test with -update (-code +page):\n%s", metricsReference, diff)
	}
	for _, literal := range metricLiterals(t) {
		if !strings.Contains(b.String(), "`"+literal+"`") {
			t.Errorf("%s is in the code and not in %s", literal, metricsReference)
		}
	}
}

const metricsIntroduction = `<!-- Generated from the code: go test ./internal/testing/archtest -run TestMetricsReference -update -->

# Metrics

` + "`GET /metrics`" + ` needs the scope ` + "`metrics`" + ` if the server has tokens. [Monitor](../howto/monitor.md) leads to the alerts.

- Counters start at 0 with the process: use ` + "`rate()`" + `. Times are in seconds, sizes in bytes.
- ` + "`countmill_lag_seconds`" + ` is absent while nobody knows the lag. That is the case if no aggregator takes or holds messages.
- ` + "`countmill_unseen_seconds`" + ` is absent if the process cannot know it, as with Pub/Sub: use Cloud Monitoring there.
- Replays do not raise the lag. Scale aggregators on ` + "`max(countmill_lag_seconds)`" + `.
- An entry is the delta that a batch has for one counter. A part is a group of entries that is counted once. A fold applies parts to the store.
`

// metrics are the metrics by the function that makes them, in the order of the code.
func metrics(t *testing.T) map[string][]metric {
	t.Helper()
	found := map[string][]metric{}
	for _, s := range metricSources(t) {
		for _, d := range s.file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || f.Body == nil {
				continue
			}
			section := f.Name.Name
			if strings.Contains(s.name, "api/scrape") {
				section = "counterMetrics"
			}
			for _, m := range metricsOf(f) {
				if !slices.ContainsFunc(found[section], func(o metric) bool { return o.name == m.name }) {
					found[section] = append(found[section], m)
				}
			}
		}
	}
	return found
}

// metricSources are the files of the product in which a metric is named.
func metricSources(t *testing.T) []source {
	t.Helper()
	var all []source
	for _, s := range sources(t) {
		if !s.isTest() && !strings.HasPrefix(s.name, "bench/") && !strings.HasPrefix(s.name, "examples/") && !strings.HasPrefix(s.name, "internal/testing/") {
			all = append(all, s)
		}
	}
	return all
}

func metricsOf(f *ast.FuncDecl) []metric {
	constants := map[string]string{}
	var all []metric
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ValueSpec:
			for i, name := range n.Names {
				if i < len(n.Values) {
					constants[name.Name], _ = text(n.Values[i], nil)
				}
			}
		case *ast.CallExpr:
			all = append(all, metricOfCall(n, constants)...)
		case *ast.CompositeLit:
			all = append(all, metricOfLiteral(n, constants)...)
		}
		return true
	})
	return all
}

// metricOfCall understands counter(name, help, value, label, value...), gauge(name, help, value) and
// head(name, help).
func metricOfCall(call *ast.CallExpr, constants map[string]string) []metric {
	kind := ""
	switch fun := call.Fun.(type) {
	case *ast.Ident:
		kind = map[string]string{"counter": "counter", "gauge": "gauge", "head": "gauge"}[fun.Name]
	case *ast.SelectorExpr:
		if fun.Sel.Name == "NewHistogramVec" { // the options come without their labels
			m := metricOfLiteral(call.Args[0].(*ast.CompositeLit), constants)
			for _, l := range call.Args[1].(*ast.CompositeLit).Elts {
				label, _ := text(l, constants)
				m[0].labels = "`" + label + "`"
			}
			return m
		}
	}
	if kind == "" || len(call.Args) < 2 {
		return nil
	}
	name, known := text(call.Args[0], constants)
	help, _ := text(call.Args[1], constants)
	if !known || !strings.HasPrefix(name, "countmill_") {
		return nil
	}
	labels := ""
	for i := 3; i+1 < len(call.Args); i += 2 {
		label, _ := text(call.Args[i], constants)
		labels = strings.TrimPrefix(labels+", `"+label+"`", ", ")
	}
	if name == "countmill_value" {
		labels = "`counter`"
	}
	return []metric{{name, kind, labels, help}}
}

// metricOfLiteral understands sample{name, help, kind, value, labels} and the options of package prometheus.
func metricOfLiteral(l *ast.CompositeLit, constants map[string]string) []metric {
	var m metric
	switch typ := l.Type.(type) {
	case *ast.SelectorExpr:
		kind, ok := strings.CutSuffix(typ.Sel.Name, "Opts")
		if !ok {
			return nil
		}
		m.kind = strings.ToLower(kind)
		for _, e := range l.Elts {
			kv := e.(*ast.KeyValueExpr)
			value, _ := text(kv.Value, constants)
			switch kv.Key.(*ast.Ident).Name {
			case "Name":
				m.name = value
			case "Help":
				m.help = value
			case "ConstLabels":
				for _, label := range kv.Value.(*ast.CompositeLit).Elts {
					name, _ := text(label.(*ast.KeyValueExpr).Key, constants)
					m.labels = strings.TrimPrefix(m.labels+", `"+name+"`", ", ")
				}
			}
		}
	case *ast.Ident:
		if typ.Name != "sample" || len(l.Elts) != 5 {
			return nil
		}
		m.name, _ = text(l.Elts[0], constants)
		m.help, _ = text(l.Elts[1], constants)
		m.kind = "gauge"
		if labels, ok := l.Elts[4].(*ast.CompositeLit); ok {
			label, _ := text(labels.Elts[0], constants)
			m.labels = "`" + label + "`"
		}
	}
	if !strings.HasPrefix(m.name, "countmill_") {
		return nil
	}
	return []metric{m}
}

// text is the value of a string literal, or of a constant of the function.
func text(e ast.Expr, constants map[string]string) (string, bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		if e.Kind != token.STRING {
			return "", false
		}
		value, err := strconv.Unquote(e.Value)
		return value, err == nil
	case *ast.Ident:
		value, ok := constants[e.Name]
		return value, ok
	}
	return "", false
}

// metricLiterals are all strings of the packages with metrics that look like a metric's name, however
// they are used.
func metricLiterals(t *testing.T) []string {
	t.Helper()
	var all []string
	for _, s := range metricSources(t) {
		if !strings.HasPrefix(s.name, "internal/") {
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			if l, ok := n.(*ast.BasicLit); ok {
				if value, ok := text(l, nil); ok && strings.HasPrefix(value, "countmill_") && !strings.ContainsAny(value, " {") {
					all = append(all, value)
				}
			}
			return true
		})
	}
	if len(all) < 50 {
		t.Fatalf("found %d names of metrics only", len(all))
	}
	return all
}
