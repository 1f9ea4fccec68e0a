package cli

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"
)

// A setter is a verb with values of several types.
type setter struct {
	toy
	data, store string
	wait        time.Duration
	size        int
	names       []string
}

func setting(of *setter) Command {
	return Command{Path: "set", New: func() Verb {
		*of = setter{store: "here", wait: time.Second}
		of.flags = []Flag{
			New("data", "DIR", Any(&of.data), "Short for --store.").FromEnv().Instead("store", "it is short").Default("none"),
			New("store", "URL", Text{To: &of.store}, "Where things are.").FromEnv(),
			New("wait", "DURATION", Duration{To: &of.wait, Max: time.Hour, Auto: true}, "How long to wait.").FromEnv(),
			New("size", "SIZE", Size{To: &of.size, Min: 1, Max: 1 << 20, Auto: true}, "How large."),
			New("name", "NAME", List{To: &of.names, Split: true, Empty: "none"}, "Whom."),
		}
		return of
	}}
}

// A flag wins over its variable, the variable over the default, and an empty variable is none.
func TestFlagsWinOverVariables(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		flags, env  string
		data, store string
		wait        time.Duration
		from        From // of --store
	}{
		{"", "", "", "here", time.Second, FromDefault},
		{"", "TOY_STORE= TOY_WAIT=auto", "", "here", 0, FromDefault},
		{"--wait=0s", "TOY_STORE=a TOY_WAIT=nonsense", "", "a", -1, FromEnv},
		{"--store b", "TOY_STORE=a TOY_DATA=d", "", "b", time.Second, FromFlag},
		{"--data=c", "TOY_STORE=a", "c", "here", time.Second, FromDefault},
	} {
		var v setter
		p, cmd := toys(), setting(&v)
		got, err := p.Parse(cmd, cmd.New(), strings.Fields(test.flags), lookupIn(test.env))
		if err != nil || v.data != test.data || v.store != test.store || v.wait != test.wait || got.From("store") != test.from || got.Given("store") != (test.from != FromDefault) {
			t.Errorf("%q, %q: got %q, %q, %s (%v)", test.flags, test.env, v.data, v.store, v.wait, err)
		}
	}
}

func lookupIn(env string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		for pair := range strings.FieldsSeq(env) {
			if value, ok := strings.CutPrefix(pair, name+"="); ok {
				return value, true
			}
		}
		return "", false
	}
}

// One error names everything that is wrong, each as the caller wrote it.
func TestOneErrorHasAll(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ flags, env, want string }{
		{"--size=2MiB --wait 2h", "TOY_STORE=", `--size: must be a size such as 65536 or 64MiB from 1 to 1MiB, or auto, got "2MiB"; --wait: must be a duration such as 250ms, 2h or 8d from 0s to 1h, or auto, got "2h"`},
		{"--size=x", "TOY_WAIT=y", `--size: must be a size such as 65536 or 64MiB from 1 to 1MiB, or auto, got "x"; TOY_WAIT: must be a duration such as 250ms, 2h or 8d from 0s to 1h, or auto, got "y"`},
		{"--data a --store b", "", "--data and --store: give one of them: it is short"},
		{"", "TOY_DATA=a TOY_STORE=b", "TOY_DATA and TOY_STORE: set one of them: it is short"},
		{"--stor b", "", "unknown flag: --stor; did you mean --store?"},
		{"more", "", `the command takes no arguments, got "more"`},
	} {
		var v setter
		cmd := setting(&v)
		if _, err := toys().Parse(cmd, cmd.New(), strings.Fields(test.flags), lookupIn(test.env)); !errors.Is(err, ErrUsage) || err.Error() != test.want {
			t.Errorf("%q, %q: got %v\nwant %s", test.flags, test.env, err, test.want)
		}
	}
}

// A flag that commands share is one row of the reference, those of one name are together, and a flag with a
// section of its own is there.
func TestReferenceJoinsRows(t *testing.T) {
	t.Parallel()
	limit := New("limit", "N", Count{To: new(int), Max: 9}, "Most | of <all>.")
	other := New("limit", "N", Count{To: new(int), Max: 9}, "Most of some.")
	all := Switch("json", new(bool), "As JSON.").In("Shared")
	command := func(path string, flags ...Flag) Command {
		return Command{Path: path, New: func() Verb { return &toy{flags: flags} }}
	}
	p := &Program{Env: "TOY_", Preface: "# Flags\n", Sections: []Section{{"Own", "Intro.", []string{"a", "b", "c"}}, {Title: "Shared"}}, Commands: []Command{
		command("a", all, limit, Switch("fix", new(bool), "Fix.")), command("b", other.FromEnv().Default("few"), all), command("c", limit),
	}}
	const header = "| Flag | Variable | Default | Commands | Meaning |\n|---|---|---|---|---|\n"
	want := "# Flags\n\n## Own\n\nIntro.\n\n" + header +
		"| `--limit N` |  | `0` | a, c | Most \\| of &lt;all>. |\n| `--limit N` | `TOY_LIMIT` | few | b | Most of some. |\n| `--fix` |  | `false` | a | Fix. |\n" +
		"\n## Shared\n\n" + header + "| `--json` |  | `false` | a, b | As JSON. |\n"
	if got := p.Reference(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if got := p.UnknownEnv([]string{"TOY_LIMIT=1", "TOY_LIMITS=1", "TOY_SERVICE_HOST=1", "TOY_PORT_80=1", "PATH=x"}); !slices.Equal(got, []string{"TOY_LIMITS"}) {
		t.Errorf("unknown variables: got %q", got)
	}
}

// A list takes several values, each checked, and from a variable with commas between.
func TestLists(t *testing.T) {
	t.Parallel()
	var names []string
	list := List{To: &names, Split: true, Empty: "none", Check: func(s string) error {
		if s == "bad" {
			return errors.New("must be good")
		}
		return nil
	}}
	if list.String() != "none" {
		t.Errorf("an empty list is %q", list.String())
	}
	if err := errors.Join(list.Set("a, b"), list.Set("c")); err != nil || list.String() != "a,b,c" {
		t.Errorf("got %q, %v", list.String(), err)
	}
	if err := list.Set("d,bad"); err == nil {
		t.Error("a bad value is taken")
	}
}

// Durations may be in days, and parts of them. An error names the range.
func TestDurationsTakeDays(t *testing.T) {
	t.Parallel()
	var got time.Duration
	of := Duration{To: &got, Min: time.Hour, Max: 30 * 24 * time.Hour, None: true}
	for text, want := range map[string]time.Duration{"8d": 192 * time.Hour, "1d12h": 36 * time.Hour, "0.5d": 12 * time.Hour, "none": 0} {
		if err := of.Set(text); err != nil || got != want {
			t.Errorf("%s: got %s, %v", text, got, err)
		}
	}
	for _, text := range []string{"8w", "31d", "59m", "auto", ""} {
		if err := of.Set(text); err == nil || err.Error() != "must be a duration such as 250ms, 2h or 8d from 1h to 720h, or none" {
			t.Errorf("%s: got %v", text, err)
		}
	}
}
