package archtest

import (
	"context"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
)

const (
	alertsFile = "deploy/prometheus/alerts.yaml"
	alertTests = "deploy/prometheus/alerts_test.yaml"
	runbook    = "docs/runbook.md"
	onGitHub   = "https://github.com/countmill/countmill/blob/main/"
)

// An alert is the part of a rule that these tests judge.
type alert struct {
	Name        string            `yaml:"alert"`
	Expr        string            `yaml:"expr"`
	Labels      map[string]string `yaml:"labels"`
	Annotations map[string]string `yaml:"annotations"`
}

func alerts(t *testing.T) []alert {
	t.Helper()
	var file struct {
		Groups []struct{ Rules []alert }
	}
	if err := yaml.Unmarshal([]byte(read(t, alertsFile)), &file); err != nil {
		t.Fatalf("%s: %v", alertsFile, err)
	}
	var all []alert
	for _, g := range file.Groups {
		all = append(all, g.Rules...)
	}
	if len(all) < 10 {
		t.Fatalf("%s has %d alerts", alertsFile, len(all))
	}
	return all
}

// Each alert is about metrics that countmill has.
func TestAlertMetrics(t *testing.T) {
	t.Parallel()
	reference := read(t, metricsReference)
	for _, a := range alerts(t) {
		names := regexp.MustCompile(`\bcountmill_\w+`).FindAllString(a.Expr, -1)
		if len(names) == 0 {
			t.Errorf("%s is about no metric of countmill: %s", a.Name, a.Expr)
		}
		for _, name := range names {
			if !strings.Contains(reference, "| `"+name+"` |") {
				t.Errorf("%s is about %s, which is not in %s", a.Name, name, metricsReference)
			}
		}
	}
}

// Each alert has a severity, a row in the runbook's list, and a section of its name with the same parts. Each section is of an alert
// or of a command in the list.
func TestRunbook(t *testing.T) {
	t.Parallel()
	text := read(t, runbook)
	known := make(map[string]bool)
	for _, a := range alerts(t) {
		known[a.Name] = true
		if want := onGitHub + runbook + "#" + strings.ToLower(a.Name); a.Annotations["runbook_url"] != want {
			t.Errorf("%s: runbook_url is %q, want %s", a.Name, a.Annotations["runbook_url"], want)
		}
		row := "| " + a.Name + " | " + a.Labels["severity"] + " |"
		if a.Labels["severity"] == "" || !strings.Contains(text, row) {
			t.Errorf("%s lacks the row %q", runbook, row)
		}
	}
	for _, row := range regexp.MustCompile("(?m)^\\| `(countmill [a-z ]+)` \\|").FindAllStringSubmatch(text, -1) {
		known[row[1]] = true
	}
	_, sections, _ := strings.Cut(text, "\n## Before the first night\n")
	for _, section := range strings.Split(sections, "\n## ")[1:] {
		title, body, _ := strings.Cut(section, "\n")
		name, _, _ := strings.Cut(title, ":")
		if !known[name] {
			t.Errorf("no alert and no command of the list has the section %q", title)
		}
		delete(known, name)
		if !regexp.MustCompile("(?s)^\n[^#].*\n### See it\n.*```sh\n.*\n### Do\n.*\n### Do not\n").MatchString(body) {
			t.Errorf("the section %q does not have its meaning, See it with commands, Do, and Do not", title)
		}
	}
	for name := range known {
		t.Errorf("%s has no section %s", runbook, name)
	}
	changes := regexp.MustCompile(`countmill (incr|import|reset|delete|grow|rule (add|remove)|index (create|delete)|dead (replay|discard))`)
	for _, b := range blocks(t, runbook) {
		if found := changes.FindString(b.text); b.language == "sh" && found != "" {
			t.Errorf("a look at production changes it: %s", found)
		}
	}
}

// The runbook has a row for each of their words: every reason for which a recount does not judge a name, and every kind
// of its differences.
func TestRunbookHasTheWordsOfCommands(t *testing.T) {
	t.Parallel()
	for _, of := range []struct {
		source, words string
		least         int
	}{
		{"internal/recount/cover.go", `(?m)^\t\w+ += "([^"]+)"$`, 7},
		{"internal/recount/recount.go", `(?m)^\t(?:Wrong\w+|MissingRecord) += "([^"]+)"`, 3},
	} {
		found := regexp.MustCompile(of.words).FindAllStringSubmatch(read(t, of.source), -1)
		if len(found) < of.least {
			t.Errorf("%s has %d words, want at least %d: %q", of.source, len(found), of.least, found)
		}
		for _, word := range found {
			what, _, _ := strings.Cut(word[1], ": ") // a reason may go on with what to do
			row := "(?m)^\\| .*`[^`]*" + regexp.QuoteMeta(what) + "`.* \\|$"
			if !regexp.MustCompile(row).MatchString(read(t, runbook)) {
				t.Errorf("no row of %s has `%s`, which %s prints", runbook, what, of.source)
			}
		}
	}
}

// promtool accepts the rules, and each alert fires and ends when its test expects it. Without promtool this
// skips, or fails if COUNTMILL_TEST_REQUIRE has "prometheus".
func TestAlertsFire(t *testing.T) {
	t.Parallel()
	promtool := tool(t, "promtool", "prometheus")
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	for _, args := range [][]string{{"check", "rules", alertsFile}, {"test", "rules", alertTests}} {
		cmd := exec.CommandContext(ctx, promtool, args...)
		cmd.Dir = root
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "SUCCESS") {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	tests := read(t, alertTests)
	for _, a := range alerts(t) {
		if !strings.Contains(tests, "- alertname: "+a.Name+"\n") || !strings.Contains(tests, "{alertname: "+a.Name+", ") {
			t.Errorf("%s does not see %s fire, or be silent", alertTests, a.Name)
		}
	}
}

// tool returns the path of a program that is not needed. Without it the test skips, or fails if
// COUNTMILL_TEST_REQUIRE has word.
func tool(t *testing.T, name, word string) string {
	t.Helper()
	found, err := exec.LookPath(name)
	if err == nil {
		return found
	}
	if slices.Contains(strings.Split(os.Getenv("COUNTMILL_TEST_REQUIRE"), ","), word) {
		t.Fatal(err)
	}
	t.Skip(err)
	return ""
}
