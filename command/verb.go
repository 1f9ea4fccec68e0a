package command

import (
	"fmt"
	"io"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/countmill/countmill/internal/app"
)

// verbFlags is what every command that talks to a server has.
type verbFlags struct {
	set     *pflag.FlagSet
	server  string
	timeout time.Duration
	json    bool
	token   tokenFlags
}

func newVerbFlags(name string, timeout time.Duration) *verbFlags {
	v := &verbFlags{set: pflag.NewFlagSet(name, pflag.ContinueOnError)}
	v.set.SetOutput(io.Discard)
	v.set.Usage = func() {}
	v.set.StringVar(&v.server, "server", "http://"+app.DefaultListen, "")
	v.set.DurationVar(&v.timeout, "timeout", timeout, "")
	v.set.BoolVar(&v.json, "json", false, "")
	v.token.bind(v.set)
	return v
}

// defaultTimeout is that of the verbs that get one answer.
const defaultTimeout = 15 * time.Second

const verbHelp = `  --server URL
      The countmill to talk to. Default http://` + app.DefaultListen + `. [COUNTMILL_SERVER]
  --timeout DURATION
      How long to wait, repeats included. Default 15s. [COUNTMILL_TIMEOUT]
  --json
      Write the server's answer as it is.
` + tokenHelp

// parse reads flags and variables and returns the other arguments.
func (v *verbFlags) parse(c call) ([]string, error) {
	flags, rest, err := splitArgs(v.set, c.args)
	if err != nil {
		return nil, err
	}
	if err := app.FlagError(v.set.Parse(flags)); err != nil {
		return nil, err
	}
	for _, name := range []string{"server", "timeout"} {
		text, ok := c.lookup(app.Env(name))
		if !ok || text == "" || v.set.Changed(name) {
			continue
		}
		if err := v.set.Set(name, text); err != nil {
			return nil, app.Usagef("%s: must be a duration such as %s, got %q", app.Env(name), defaultTimeout, text)
		}
	}
	if err := v.token.readEnv(v.set, c); err != nil {
		return nil, err
	}
	if v.timeout <= 0 {
		return nil, app.Usagef("--timeout: must be more than 0s, got %s", v.timeout)
	}
	return rest, nil
}

var negative = regexp.MustCompile(`^-[0-9]`)

// splitArgs tells flags from other arguments, wherever they stand. A negative number is
// no flag, so that `incr NAME -3` works; after -- nothing is. It cannot be a name
// before that: `incr -3` is rather a delta whose name was forgotten.
func splitArgs(set *pflag.FlagSet, args []string) (flags, rest []string, err error) {
	for i := 0; i < len(args); i++ {
		arg := args[i]
		switch {
		case arg == "--":
			return flags, append(rest, args[i+1:]...), nil
		case negative.MatchString(arg) && len(rest) == 0:
			return nil, nil, app.Usagef("%q stands where NAME is expected; put -- before a name that begins with -", arg)
		case !strings.HasPrefix(arg, "-") || arg == "-" || negative.MatchString(arg):
			rest = append(rest, arg)
		default:
			flags = append(flags, arg)
			if takesValue(set, arg) && i+1 < len(args) {
				i++
				flags = append(flags, args[i])
			}
		}
	}
	return flags, rest, nil
}

// takesValue reports whether the next argument is the value of this flag.
func takesValue(set *pflag.FlagSet, arg string) bool {
	f := set.Lookup(strings.TrimPrefix(arg, "--"))
	return f != nil && f.NoOptDefVal == ""
}

// quoted is arguments as an error shows them.
func quoted(args []string) string {
	if len(args) == 0 {
		return "none"
	}
	return strings.Trim(fmt.Sprintf("%q", args), "[]")
}

// checkNames is what the server would say, without asking it.
func checkNames(names []string, most int) error {
	if len(names) == 0 {
		return app.Usagef("NAME is missing")
	}
	if len(names) > most {
		return app.Usagef("%d names are too many (limit: %d)", len(names), most)
	}
	for _, name := range names {
		if err := checkCounter(name); err != nil {
			return err
		}
	}
	return nil
}
