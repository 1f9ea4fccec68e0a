package command

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/countmill/countmill/command/cli"
)

const referencePage = "../docs/reference/flags.md"

// docs/reference/flags.md has the flags of all commands.
func TestReference(t *testing.T) {
	t.Parallel()
	want := program().Reference()
	if os.Getenv("COUNTMILL_WRITE_REFERENCE") != "" {
		if err := os.MkdirAll(filepath.Dir(referencePage), 0o755); err != nil {
			t.Fatal(err)
		}
		write(t, referencePage, want)
	}
	got, err := os.ReadFile(referencePage)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("%s is not as the flags are; COUNTMILL_WRITE_REFERENCE=1 writes it (-flags +page):\n%s", referencePage, diff)
	}
}

// Every flag is in the help of its command, once, with a sentence.
func TestHelpHasEveryFlag(t *testing.T) {
	t.Parallel()
	for _, cmd := range program().Commands {
		text, seen := try(t, nil, append([]string{"help"}, strings.Fields(cmd.Path)...)...).out, make(map[string]bool)
		for _, f := range cmd.New().Flags() {
			if !strings.HasSuffix(f.Help, ".") {
				t.Errorf("%s --%s has the help %q, want sentences", cmd.Path, f.Name, f.Help)
			}
			if !strings.Contains(text, "\n  --"+f.Name) {
				t.Errorf("help of %s does not have --%s", cmd.Path, f.Name)
			}
			if _, ok := f.Value.(cli.Duration); ok != strings.Contains(f.Arg, "DURATION") {
				t.Errorf("%s --%s %s is a %T", cmd.Path, f.Name, f.Arg, f.Value)
			}
			if seen[f.Name] {
				t.Errorf("%s has --%s twice", cmd.Path, f.Name)
			}
			seen[f.Name] = true
		}
	}
}

// The scripts call __complete when somebody presses Tab.
func TestCompletion(t *testing.T) {
	t.Parallel()
	for shell, want := range map[string]string{"bash": "complete -o default -F __start_countmill countmill", "zsh": "#compdef countmill", "fish": "complete -c countmill"} {
		if got := try(t, nil, "completion", shell); got.code != 0 || got.errOut != "" || !strings.Contains(got.out, want) {
			t.Errorf("completion %s: got exit %d, %s; want a script with %q", shell, got.code, got.errOut, want)
		}
	}
	try(t, nil, "completion", "tcsh").wantError(t, 2, `name one shell (limit: bash, zsh, fish), got "tcsh"`)
	try(t, nil, "completion").wantError(t, 2, "name one shell")
	for args, want := range map[string]string{
		"res":                     "reset",
		"dead re":                 "replay",
		"get --max":               "--max-staleness",
		"up --log-level ":         "warn",
		"import x.csv --format n": "ndjson",
	} {
		words := strings.Split(args, " ")
		got := try(t, nil, append([]string{"__complete"}, words...)...)
		offered := strings.FieldsFunc(got.out, func(r rune) bool { return r == '\n' || r == '\t' })
		if got.code != 0 || !slices.Contains(offered, want) {
			t.Errorf("%s: got %+v, want %q among what is offered", args, got, want)
		}
	}
	if got := try(t, nil, "__complete", "get", ""); !strings.Contains(got.out, ":4") { // cobra.ShellCompDirectiveNoFileComp
		t.Errorf("a NAME is completed with files: %+v", got)
	}
}

func TestMainTakesOptions(t *testing.T) {
	t.Parallel()
	f := newFakeServer(t, answer(200, `{"totals":[{"counter":"a","total":7,"exists":true}]}`))
	var out, errOut strings.Builder
	code := Main(Args("get", "a"), Environ([]string{"COUNTMILL_SERVER=" + f.URL}), Streams(strings.NewReader(""), &out, &errOut), Context(t.Context()))
	if code != 0 || out.String() != "7\n" || errOut.String() != "" {
		t.Errorf("got exit %d, %q, %q; want 7", code, out.String(), errOut.String())
	}
}

// The overview has each command once, in its group, and short texts begin in one column.
func TestOverview(t *testing.T) {
	t.Parallel()
	text := try(t, nil, "help").out
	for _, cmd := range append(program().Commands, program().Families...) {
		if strings.Contains(cmd.Path, " ") {
			continue
		}
		row := "\n  " + strings.TrimSpace(cmd.Path+" "+cmd.Args)
		row += strings.Repeat(" ", 39-len(row)) + cmd.Short + "\n"
		if strings.Count(text, row) != 1 {
			t.Errorf("the overview does not have once: %q", row)
		}
	}
	for _, group := range program().Groups {
		if !strings.Contains(text, "\n"+group.Title+":\n\n  ") {
			t.Errorf("no commands below %q", group.Title)
		}
	}
	if strings.Contains(text, "  dead list") {
		t.Error("the overview has the commands of a family, which its own help has")
	}
	if dead := try(t, nil, "help", "dead").out; !strings.Contains(dead, "\n  dead replay KEY... ") {
		t.Errorf("help dead has no dead replay:\n%s", dead)
	}
}

// Help fits a terminal that is not narrow, and its columns are apart.
func TestHelpFits(t *testing.T) {
	t.Parallel()
	const widest = 112
	for _, cmd := range append(program().Commands, program().Families...) {
		for line := range strings.Lines(try(t, nil, append([]string{"help"}, strings.Fields(cmd.Path)...)...).out) {
			if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > widest {
				t.Errorf("help %s has a line of %d characters, want at most %d: %s", cmd.Path, n, widest, line)
			}
		}
	}
	if rule := try(t, nil, "help", "rule").out; !strings.Contains(rule, "PATTERN=KEEP\n"+strings.Repeat(" ", 38)+"add a rule") {
		t.Errorf("help rule:\n%s", rule)
	}
}
