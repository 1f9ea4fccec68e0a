package command

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

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

// Every flag is in the help of its command and in the reference, once; every row is a flag.
func TestEveryFlagIsDocumented(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(referencePage)
	if err != nil {
		t.Fatal(err)
	}
	rows := make(map[string]bool) // of the page: "get --timeout"
	for _, m := range regexp.MustCompile("(?m)^\\| `--([a-z-]+)[^`]*` \\|[^|]*\\|[^|]*\\| ([a-z, ]+) \\| [^|]+").FindAllStringSubmatch(string(page), -1) {
		for path := range strings.SplitSeq(m[2], ", ") {
			rows[path+" --"+m[1]] = true
		}
	}
	flags := 0
	for _, cmd := range program().Commands {
		text, seen := try(t, nil, append([]string{"help"}, strings.Fields(cmd.Path)...)...).out, make(map[string]bool)
		for _, f := range cmd.New().Flags() {
			flags++
			if !strings.HasSuffix(f.Help, ".") {
				t.Errorf("%s --%s has the help %q, want sentences", cmd.Path, f.Name, f.Help)
			}
			if !strings.Contains(text, "\n  --"+f.Name) {
				t.Errorf("help of %s does not have --%s", cmd.Path, f.Name)
			}
			if !rows[cmd.Path+" --"+f.Name] {
				t.Errorf("%s does not have --%s of %s", referencePage, f.Name, cmd.Path)
			}
			if seen[f.Name] {
				t.Errorf("%s has --%s twice", cmd.Path, f.Name)
			}
			seen[f.Name] = true
		}
	}
	if flags != len(rows) {
		t.Errorf("the command line has %d flags, the reference %d", flags, len(rows))
	}
}

// Each duration takes days. Where 8d is too long, the error names the range, and a part of a day is taken.
func TestDurationsTakeDays(t *testing.T) {
	t.Parallel()
	durations := 0
	for _, cmd := range program().Commands {
		for _, f := range cmd.New().Flags() {
			value := f.Value
			d, ok := value.(cli.Duration)
			if !ok {
				if strings.Contains(f.Arg, "DURATION") {
					t.Errorf("%s --%s takes a DURATION and is a %T", cmd.Path, f.Name, value)
				}
				continue
			}
			durations++
			text, want := "8d", 192*time.Hour
			if d.Max > 0 && d.Max < want {
				if err := value.Set(text); err == nil || !strings.Contains(err.Error(), "2h or 8d from ") {
					t.Errorf("%s --%s 8d: got %v, want an error with the range", cmd.Path, f.Name, err)
				}
				text, want = "0.0005d", 43200*time.Millisecond
				if d.Max < want {
					text, want = "0.00005d", 4320*time.Millisecond
				}
			}
			if err := value.Set(text); err != nil || *d.To != want {
				t.Errorf("%s --%s %s: got %s (%v), want %s", cmd.Path, f.Name, text, *d.To, err, want)
			}
		}
	}
	if durations < 40 {
		t.Errorf("got %d duration flags, want more: is the table read?", durations)
	}
}

// On a command line and in a variable, too.
func TestDaysOnTheCommandLine(t *testing.T) {
	t.Parallel()
	settings := parsed(t, []string{"--dedup-window", "8d"}, nil)
	if got := setting(t, settings, "dedup-window").Value; got != "192h" {
		t.Errorf("--dedup-window 8d is %s, want 192h", got)
	}
	settings = parsed(t, nil, map[string]string{"COUNTMILL_DEDUP_WINDOW": "1d12h"})
	if got := setting(t, settings, "dedup-window").Value; got != "36h" {
		t.Errorf("COUNTMILL_DEDUP_WINDOW=1d12h is %s, want 36h", got)
	}
	if got := try(t, nil, "plan", "--rate", "1", "--dedup-window", "8d", "--json"); !strings.Contains(got.out, `"dedup-window": "192h0m0s"`) {
		t.Errorf("plan --dedup-window 8d: got %+v", got)
	}
}

func TestDidYouMean(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"incrr":                   `unknown command "incrr"; did you mean incr?`,
		"resett a":                `unknown command "resett"; did you mean reset?`,
		"help wach":               `unknown command "wach"; did you mean watch?`,
		"dead lst":                `unknown "lst"; did you mean list?`,
		"get a --max-stalenes=1s": "unknown flag: --max-stalenes; did you mean --max-staleness?",
		"up --lissten :1":         "unknown flag: --lissten; did you mean --listen?",
		"frobnicate":              `unknown command "frobnicate" (try one of: up, publisher, `,
		"get a --frobnicate":      "unknown flag: --frobnicate (see countmill help get)",
	} {
		try(t, nil, strings.Fields(args)...).wantError(t, 2, want)
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
	f := newFakeServer(t, answer(200, `{"totals":[{"counter":"a","total":7}]}`))
	var out, errOut strings.Builder
	code := Main(Args("get", "a"), Environ([]string{"COUNTMILL_SERVER=" + f.URL}), Streams(strings.NewReader(""), &out, &errOut), Context(t.Context()))
	if code != 0 || out.String() != "7\n" || errOut.String() != "" {
		t.Errorf("got exit %d, %q, %q; want 7", code, out.String(), errOut.String())
	}
}
