package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/countmill/countmill/internal/testing/child"
	"github.com/countmill/countmill/internal/testing/longtest"
)

// A dashboard is the part of a file in deploy/grafana that asks something.
type dashboard struct {
	UID, Title string
	Panels     []struct {
		Title      string
		Datasource struct{ Type, UID string }
		Targets    []target
	}
	Templating struct {
		List []struct {
			Name, Type string
			Query      json.RawMessage
			Options    []struct{ Value string }
		}
	}
}

// A target is a query of Prometheus, or of the Infinity data source.
type target struct {
	Expr string

	Type, Source, Parser, URL string
	Options                   struct {
		Method string
		Params []struct{ Key, Value string }
	} `json:"url_options"`
	Root    string `json:"root_selector"`
	Columns []struct{ Selector, Text, Type string }
}

func loadDashboard(t *testing.T, name string) (d dashboard) {
	t.Helper()
	text, err := os.ReadFile("../../deploy/grafana/" + name)
	if err == nil {
		err = json.Unmarshal(text, &d)
	}
	if err != nil {
		t.Fatal(err)
	}
	if d.UID == "" || len(d.Panels) < 5 {
		t.Fatalf("%s: %d panels, want a dashboard", name, len(d.Panels))
	}
	return d
}

// variables are those of the dashboards, and of Grafana, with the values of this test.
func (d *dashboard) variables(t *testing.T, server, step string) *strings.Replacer {
	t.Helper()
	now := time.Now().UTC()
	values := map[string]string{
		"url": server, "prefix": "page:", "counter": "page:/home", "step": step, "tz": "Asia/Kathmandu",
		"infinity": "", "prometheus": "", "job": ".*",
	}
	pairs := []string{
		// The last 6 hours, as the dashboard begins.
		"${__from:date:iso}", now.Add(-6 * time.Hour).Format("2006-01-02T15:04:05.000Z"), "${__to:date:iso}", now.Format("2006-01-02T15:04:05.000Z"),
		"$__rate_interval", "5s",
	}
	for _, v := range d.Templating.List {
		value, ok := values[v.Name]
		if !ok {
			t.Errorf("%s: the variable %s has no value in this test", d.Title, v.Name)
		}
		pairs = append(pairs, "${"+v.Name+"}", value, "$"+v.Name, value)
	}
	return strings.NewReplacer(pairs...)
}

// Each query of the dashboard of totals is answered by a running `up`, with the fields that the
// dashboard shows.
func TestGrafanaTotals(t *testing.T) {
	t.Parallel()
	r := startWith(t, Config{})
	r.addRule(t, "series", "page:*", "1m:6h,15m:400d")
	r.incr(t, `[{"counter":"page:/home"},{"counter":"page:/about"}]`)
	r.poll(t, "busy", func() bool {
		_, text := r.call(t, "GET", "/v1/overview", "")
		return strings.Contains(text, `"counter":"page:/home"`) && !strings.Contains(text, `"lag":null`)
	})
	d := loadDashboard(t, "totals.json")
	replace := d.variables(t, r.url, "15m")
	asked := 0
	ask := func(where string, q target) {
		t.Helper()
		asked++
		query := url.Values{}
		for _, p := range q.Options.Params {
			query.Add(p.Key, replace.Replace(p.Value))
		}
		address := replace.Replace(q.URL)
		if strings.Contains(address+query.Encode(), "$") || q.Type != "json" || q.Source != "url" || q.Options.Method != "GET" {
			t.Errorf("%s: asks %s?%s as %s of %s", where, address, query.Encode(), q.Type, q.Source)
			return
		}
		path, ok := strings.CutPrefix(address, r.url)
		if !ok {
			t.Errorf("%s: asks %s, want the server of the variable url", where, address)
			return
		}
		status, text := r.call(t, "GET", path+"?"+query.Encode(), "")
		if path == "/v1/series" && strings.Count(text, `"value":1,`) != 1 {
			t.Errorf("%s: got rows %s, want one with the increment", where, text)
		}
		if status != http.StatusOK {
			t.Errorf("%s: GET %s?%s: got %d %s", where, path, query.Encode(), status, text)
			return
		}
		checkColumns(t, where, text, q)
	}
	for _, p := range d.Panels {
		for _, q := range p.Targets {
			ask("panel "+p.Title, q)
		}
	}
	for _, v := range d.Templating.List {
		var q struct{ InfinityQuery target }
		if v.Type == "query" && json.Unmarshal(v.Query, &q) == nil {
			ask("variable "+v.Name, q.InfinityQuery)
		}
	}
	steps := 0
	for _, v := range d.Templating.List {
		for _, step := range v.Options {
			replace = d.variables(t, r.url, step.Value)
			for _, p := range d.Panels {
				for _, q := range p.Targets {
					if strings.HasSuffix(q.URL, "/v1/series") {
						steps++
						ask("panel "+p.Title+" by "+step.Value, q)
					}
				}
			}
		}
	}
	if steps < 4 {
		t.Errorf("%d steps of series only", steps)
	}
	if asked < 8 {
		t.Errorf("%d queries only", asked)
	}
}

// checkColumns fails if the rows of an answer lack a column.
func checkColumns(t *testing.T, where, text string, q target) {
	t.Helper()
	var answer any
	if err := json.Unmarshal([]byte(text), &answer); err != nil {
		t.Fatalf("%s: %v", where, err)
	}
	if q.Root != "" {
		answer = answer.(map[string]any)[q.Root]
	}
	rows, many := answer.([]any)
	if !many {
		rows = []any{answer}
	}
	if len(rows) == 0 {
		t.Errorf("%s: no rows at %q in %s", where, q.Root, text)
		return
	}
	row, _ := rows[0].(map[string]any)
	for _, c := range q.Columns {
		if _, ok := row[c.Selector]; !ok {
			t.Errorf("%s: no %s in %v", where, c.Selector, rows[0])
		}
	}
}

// expressions are the queries of the dashboard of the pipeline, by panel.
func expressions(t *testing.T) map[string]string {
	t.Helper()
	d := loadDashboard(t, "pipeline.json")
	replace := d.variables(t, "", "15m")
	all := map[string]string{}
	for _, p := range d.Panels {
		for i, q := range p.Targets {
			all[fmt.Sprintf("%s %d", p.Title, i)] = replace.Replace(q.Expr)
		}
	}
	if len(all) < 25 {
		t.Errorf("%d queries only", len(all))
	}
	return all
}

// labelValues are the metrics whose labels the variables of the dashboard of the pipeline list, by label.
func labelValues(t *testing.T) map[string]string {
	t.Helper()
	d := loadDashboard(t, "pipeline.json")
	all := map[string]string{}
	for _, v := range d.Templating.List {
		if v.Type != "query" {
			continue
		}
		var q struct{ Query string }
		if err := json.Unmarshal(v.Query, &q); err != nil {
			t.Fatal(err)
		}
		m := regexp.MustCompile(`^label_values\((\w+), *(\w+)\)$`).FindStringSubmatch(q.Query)
		if m == nil {
			t.Fatalf("variable %s asks %q, want label_values(METRIC, LABEL)", v.Name, q.Query)
		}
		all[m[2]] = m[1]
	}
	if all["job"] == "" {
		t.Errorf("no variable lists the jobs: %v", all)
	}
	return all
}

// Each metric of the dashboard of the pipeline is on /metrics of a running `up`.
func TestGrafanaPipeline(t *testing.T) {
	t.Parallel()
	r := start(t, t.TempDir())
	r.incr(t, `{"counter":"a"}`)
	r.wantTotal(t, "a", 1)
	r.poll(t, "alive", func() bool { return r.metric(t, "countmill_aggregators_alive") == 1 })
	_, text := r.call(t, "GET", "/metrics", "")
	for label, metric := range labelValues(t) {
		if !strings.Contains(text, "\n"+metric+"{") && !strings.Contains(text, "\n"+metric+" ") {
			t.Errorf("the variable of label %s: /metrics has no %s", label, metric)
		}
	}
	name := regexp.MustCompile(`\b(countmill|process|go)_\w+`)
	for panel, expr := range expressions(t) {
		found := name.FindAllString(expr, -1)
		if len(found) == 0 {
			t.Errorf("panel %s: no metric in %s", panel, expr)
		}
		for _, metric := range found {
			if !regexp.MustCompile(`(?m)^` + metric + `[ {]`).MatchString(text) {
				t.Errorf("panel %s: /metrics has no %s", panel, metric)
			}
		}
	}
}

// A real Prometheus scrapes `up` and answers each query of the dashboard. Without one this skips, or
// fails if COUNTMILL_TEST_REQUIRE has "prometheus".
func TestGrafanaPipelineInPrometheus(t *testing.T) {
	t.Parallel()
	longtest.Only(t, "starts Prometheus")
	program, err := exec.LookPath("prometheus")
	if err != nil {
		if slices.Contains(strings.Split(os.Getenv("COUNTMILL_TEST_REQUIRE"), ","), "prometheus") {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	r := start(t, t.TempDir())
	address := startPrometheus(t, program, strings.TrimPrefix(r.url, "http://"))
	deadline := time.Now().Add(patience)
	for panel, expr := range expressions(t) {
		for {
			r.incr(t, `[{"counter":"a"},{"counter":"b"}]`)
			r.wantSomeTotal(t)
			samples, err := queryPrometheus(r.client, address, expr)
			if err == nil && samples > 0 {
				break
			}
			if err != nil && strings.Contains(err.Error(), "bad_data") || time.Now().After(deadline) {
				t.Errorf("panel %s: %s: %d samples, %v", panel, expr, samples, err)
				break
			}
			<-time.After(200 * time.Millisecond)
		}
	}
	for label, metric := range labelValues(t) {
		if values, err := listLabel(r.client, address, metric, label); err != nil || !slices.Equal(values, []string{"countmill"}) {
			t.Errorf("label_values(%s, %s): got %q, %v; want the job of the scrape", metric, label, values, err)
		}
	}
}

// listLabel returns the values of a label, as Grafana asks for label_values.
func listLabel(client *http.Client, address, metric, label string) (values []string, err error) {
	res, err := client.Get(address + "/api/v1/label/" + label + "/values?match[]=" + url.QueryEscape(metric))
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	var answer struct {
		Error string
		Data  []string
	}
	if err := json.NewDecoder(res.Body).Decode(&answer); err != nil {
		return nil, err
	}
	if answer.Error != "" {
		return nil, errors.New(answer.Error)
	}
	return answer.Data, nil
}

// wantSomeTotal reads a total, from the store and from the cache.
func (r *running) wantSomeTotal(t *testing.T) {
	t.Helper()
	for _, staleness := range []string{"0s", "1m"} {
		if status, text := r.call(t, "GET", "/v1/totals?counter=a&max_staleness="+staleness, ""); status != http.StatusOK {
			t.Fatalf("got %d %s", status, text)
		}
	}
}

// startPrometheus runs Prometheus until the test ends. It scrapes target every second.
func startPrometheus(t *testing.T, program, target string) (address string) {
	t.Helper()
	dir := t.TempDir()
	config := filepath.Join(dir, "prometheus.yml")
	text := "global: {scrape_interval: 1s}\nscrape_configs:\n  - {job_name: countmill, static_configs: [{targets: [" + `"` + target + `"` + "]}]}\n"
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	kept, err := child.KeepPort()
	if err != nil {
		t.Fatal(err)
	}
	listen := kept.Addr()
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, program, "--config.file="+config, "--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+listen)
	log := &logBuffer{}
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = log, log, 10*time.Second
	if err := kept.Free(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		_ = cmd.Wait() // it is killed
		if t.Failed() {
			t.Log(log.String())
		}
	})
	return "http://" + listen
}

// queryPrometheus returns the number of samples that a query has now.
func queryPrometheus(client *http.Client, address, expr string) (int, error) {
	res, err := client.Get(address + "/api/v1/query?query=" + url.QueryEscape(expr))
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	var answer struct {
		Status, ErrorType, Error string
		Data                     struct{ Result []json.RawMessage }
	}
	if err := json.NewDecoder(res.Body).Decode(&answer); err != nil {
		return 0, err
	}
	if answer.Status != "success" {
		return 0, fmt.Errorf("%s: %s", answer.ErrorType, answer.Error)
	}
	return len(answer.Data.Result), nil
}
