package archtest

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// A workflow is the part of a file below .github/workflows, or of an action's file, that this test judges.
type workflow struct {
	Permissions map[string]string `yaml:"permissions"`
	Jobs        map[string]job    `yaml:"jobs"`
	Runs        struct {
		Steps []step `yaml:"steps"`
	} `yaml:"runs"`
}

type job struct {
	Timeout     int               `yaml:"timeout-minutes"`
	Permissions map[string]string `yaml:"permissions"`
	Steps       []step            `yaml:"steps"`
	Strategy    struct {
		Matrix map[string][]string `yaml:"matrix"`
	} `yaml:"strategy"`
}

type step struct {
	Uses string            `yaml:"uses"`
	Run  string            `yaml:"run"`
	With map[string]string `yaml:"with"`
}

// mayWrite are the jobs that may change the repository, each with its permissions.
var mayWrite = map[string]string{
	"release.yml draft": "attestations, contents, id-token",
}

var (
	// A tag can be moved to other code, a commit cannot. The comment names the version for people.
	pinnedAction = regexp.MustCompile(`^[\w.-]+/[\w./-]+@[0-9a-f]{40}$`)
	pinnedLine   = regexp.MustCompile(`uses: [^ ]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$`)
	makeTargets  = regexp.MustCompile(`(?m)^([a-z0-9-]+):`)
	expression   = regexp.MustCompile(`\$\{\{[^}]*\}\}`)
	repository   = regexp.MustCompile(`^(\./)?[\w.-]+(/[\w.-]+)+/?$`)
)

// Workflows name only make targets and files that exist, pin every action to a commit, and have no more
// permissions than they need.
func TestWorkflows(t *testing.T) {
	t.Parallel()
	seen := 0
	for name, text := range github(t) {
		if !strings.HasPrefix(name, "workflows/") && !strings.HasPrefix(name, "actions/") {
			var any map[string]any
			if err := yaml.Unmarshal([]byte(text), &any); err != nil || len(any) == 0 {
				t.Errorf("%s: got %d keys, %v", name, len(any), err)
			}
			continue
		}
		seen++
		for _, problem := range judge(t, filepath.Base(name), text) {
			t.Errorf(".github/%s: %s", name, problem)
		}
	}
	if seen < 4 {
		t.Errorf("found %d workflows and actions only", seen)
	}
}

// github returns the YAML files below .github, by their names there.
func github(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	dir := filepath.Join(root, ".github")
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		all[filepath.ToSlash(strings.TrimPrefix(path, dir+"/"))] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// judge returns the faults of a workflow or an action.
func judge(t *testing.T, name, text string) (problems []string) {
	t.Helper()
	var w workflow
	if err := yaml.Unmarshal([]byte(text), &w); err != nil {
		return []string{err.Error()}
	}
	complain := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if strings.Contains(line, "uses: ") && !strings.Contains(line, "uses: ./") && !pinnedLine.MatchString(line) {
			complain("%q does not name a commit with its version in a comment", line)
		}
	}
	if strings.Contains(text, "pull_request_target") {
		complain("pull_request_target runs a stranger's code with our rights")
	}
	if len(w.Jobs) > 0 && !maps.Equal(w.Permissions, map[string]string{"contents": "read"}) {
		complain("got permissions %v, want contents: read; a job asks for more by itself", w.Permissions)
	}
	for _, s := range w.Runs.Steps {
		problems = append(problems, s.faults(t, nil)...)
	}
	for _, id := range slices.Sorted(maps.Keys(w.Jobs)) {
		problems = append(problems, w.Jobs[id].faults(t, name+" "+id)...)
	}
	return problems
}

func (j job) faults(t *testing.T, name string) (problems []string) {
	if j.Timeout <= 0 {
		problems = append(problems, name+" has no timeout-minutes: it may hang for six hours")
	}
	if got := strings.Join(slices.Sorted(maps.Keys(j.Permissions)), ", "); got != mayWrite[name] {
		problems = append(problems, fmt.Sprintf("%s has permissions for %q, want %q", name, got, mayWrite[name]))
	}
	for _, s := range j.Steps {
		problems = append(problems, s.faults(t, j.Strategy.Matrix)...)
	}
	return problems
}

// faults of a step: its commands are tried with every value of the matrix.
func (s step) faults(t *testing.T, matrix map[string][]string) (problems []string) {
	switch {
	case strings.HasPrefix(s.Uses, "./"):
		problems = append(problems, absent(s.Uses+"/action.yml")...)
	case s.Uses != "" && !pinnedAction.MatchString(s.Uses):
		problems = append(problems, fmt.Sprintf("action %q is not pinned", s.Uses))
	case strings.HasPrefix(s.Uses, "actions/checkout@") && s.With["persist-credentials"] != "false":
		problems = append(problems, "checkout leaves its token in .git: set persist-credentials to false")
	}
	problems = append(problems, absent(s.With["cache-dependency-path"])...)
	commands := []string{s.Run}
	for name, values := range matrix {
		place := "${{ matrix." + name + " }}"
		if strings.Contains(s.Run, place) {
			commands = nil
			for _, v := range values {
				commands = append(commands, strings.ReplaceAll(s.Run, place, v))
			}
		}
	}
	for _, command := range commands {
		if expression.MatchString(command) {
			problems = append(problems, fmt.Sprintf("%q: an expression in a command can contain a command: pass it in env", command))
		}
		problems = append(problems, unknown(t, command)...)
	}
	return problems
}

// unknown returns the make targets and the paths in a command that do not exist.
func unknown(t *testing.T, command string) (problems []string) {
	targets := map[string]bool{}
	for _, m := range makeTargets.FindAllStringSubmatch(read(t, "Makefile"), -1) {
		targets[m[1]] = true
	}
	made := false // the words of make follow, up to the next command
	for _, word := range strings.Fields(command) {
		word = strings.Trim(word, `"'`)
		switch {
		case word == "make" || word == "&&" || word == ";":
			made = word == "make"
		case made && !strings.ContainsAny(word, "=$") && word[0] != '-' && !targets[word]:
			problems = append(problems, fmt.Sprintf("%q: the Makefile has no target %q", command, word))
		case repository.MatchString(word):
			problems = append(problems, absent(word)...)
		}
	}
	return problems
}

func absent(path string) []string {
	if _, err := os.Stat(filepath.Join(root, path)); path != "" && err != nil {
		return []string{err.Error()}
	}
	return nil
}

// A fault of each kind is found.
func TestWorkflowFaultsAreFound(t *testing.T) {
	t.Parallel()
	const good = `
on: push
permissions:
  contents: read
jobs:
  a:
    timeout-minutes: 5
    strategy:
      matrix:
        target: [chaos CHAOS=1m, planted-processes]
    steps:
      - uses: actions/checkout@3d3c42e5aac5ba805825da76410c181273ba90b1 # v7.0.1
        with:
          persist-credentials: false
      - uses: ./.github/actions/setup
      - run: make ${{ matrix.target }}
      - run: .ci/run && make race
`
	if problems := judge(t, "x.yml", good); len(problems) > 0 {
		t.Fatalf("got %q for a good workflow", problems)
	}
	for _, fault := range []struct{ old, new string }{
		{"contents: read", "contents: write"},
		{"permissions:\n  contents: read\n", ""},
		{"    timeout-minutes: 5\n", ""},
		{"    timeout-minutes: 5\n", "    timeout-minutes: 5\n    permissions:\n      contents: write\n"},
		{"@3d3c42e5aac5ba805825da76410c181273ba90b1", "@v7"},
		{" # v7.0.1", ""},
		{"persist-credentials: false", "fetch-depth: 1"},
		{"./.github/actions/setup", "./.github/actions/gone"},
		{"chaos CHAOS=1m", "chaoss CHAOS=1m"},
		{"planted-processes", "planted-process"},
		{".ci/run", ".ci/gone"},
		{"make race", "make races"},
		{"make race", "echo ${{ github.head_ref }}"},
		{"on: push", "on: pull_request_target"},
		{"jobs:", "jobs: ["},
	} {
		text := strings.Replace(good, fault.old, fault.new, 1)
		if text == good || len(judge(t, "x.yml", text)) == 0 {
			t.Errorf("%q in place of %q: got no fault", fault.new, fault.old)
		}
	}
}
