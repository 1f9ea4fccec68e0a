package app

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/countmill/countmill/internal/access"
)

// From says where a setting comes from.
type From string

// The places, in the order in which they win.
const (
	FromFlag    From = "flag"
	FromEnv     From = "env"
	FromDefault From = "default"
)

// A Setting is one flag as it is in force.
type Setting struct {
	Name  string `json:"name"`
	Env   string `json:"env"`
	Value string `json:"value"`
	From  From   `json:"from"`
}

// ErrHelp is returned by Parse for --help.
var ErrHelp = pflag.ErrHelp

// Parse reads flags and variables: a flag wins over its variable, that over the
// default, and an empty variable is none. The error matches ErrUsage and names all flags
// and variables that are wrong at once. args must hold flags only.
func Parse(roles Roles, args []string, lookup func(string) (string, bool)) (Config, []Setting, error) {
	cfg := Config{Roles: roles}.withDefaults()
	set := pflag.NewFlagSet(roles.String(), pflag.ContinueOnError)
	set.SetOutput(io.Discard)
	set.Usage = func() {}
	var wrong []string
	for _, o := range optionsOf(roles) {
		value := o.bind(&cfg)
		set.Var(notedValue{value, o.name, &wrong}, o.name, o.help)
		if value.Type() == "bool" {
			set.Lookup(o.name).NoOptDefVal = "true"
		}
	}
	if err := set.Parse(args); err != nil {
		return cfg, nil, FlagError(err)
	}
	if extra := set.Args(); len(extra) > 0 {
		return cfg, nil, Usagef("the command takes no arguments, got %q", extra[0])
	}
	from := readEnv(set, lookup)
	if wrong != nil {
		return cfg, nil, Usagef("%s", strings.Join(wrong, "; "))
	}
	if err := storeOnce(from); err != nil {
		return cfg, nil, err
	}
	return cfg, settings(cfg, from), nil
}

// FlagError makes one line of an error of pflag; nil stays nil.
func FlagError(err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, pflag.ErrHelp) {
		return ErrHelp
	}
	var wrong *pflag.InvalidValueError
	if errors.As(err, &wrong) {
		return Usagef("--%s: must be %s, got %q", wrong.GetFlag().Name, wanted(wrong.GetFlag()), wrong.GetValue())
	}
	return Usagef("%s", err)
}

// wanted is what pflag's own values take; they say so in words of the Go library.
func wanted(f *pflag.Flag) string {
	if f.Value.Type() == "bool" {
		return "true or false"
	}
	return "a " + f.Value.Type() + " such as " + f.DefValue
}

// readEnv sets what the flags left open and says where each setting comes from. --data
// and --store are one setting: a flag for one of them wins over the variable of the
// other.
func readEnv(set *pflag.FlagSet, lookup func(string) (string, bool)) map[string]From {
	from := make(map[string]From)
	set.Visit(func(f *pflag.Flag) { from[f.Name] = FromFlag })
	storeByFlag := from["data"] == FromFlag || from["store"] == FromFlag
	set.VisitAll(func(f *pflag.Flag) {
		text, ok := lookup(Env(f.Name))
		isStore := f.Name == "data" || f.Name == "store"
		if !ok || text == "" || from[f.Name] == FromFlag || isStore && storeByFlag {
			return
		}
		from[f.Name] = FromEnv
		f.Value.(notedValue).set(Env(f.Name), text)
	})
	return from
}

func storeOnce(from map[string]From) error {
	switch {
	case from["data"] == "" || from["store"] == "":
		return nil
	case from["data"] == FromFlag:
		return Usagef("--data DIR is short for --store pebble:DIR: give one of them")
	}
	return Usagef("COUNTMILL_DATA is short for COUNTMILL_STORE=pebble:DIR: set one of them")
}

// settings is what is in force, with what the backends decide.
func settings(cfg Config, from map[string]From) []Setting {
	cfg = cfg.resolve()
	var all []Setting
	for _, o := range optionsOf(cfg.Roles) {
		if o.name == "data" {
			continue // --store shows what --data says
		}
		where := from[o.name]
		if o.name == "store" {
			where = cmp.Or(where, from["data"])
		}
		all = append(all, Setting{
			Name: o.name, Env: Env(o.name), Value: o.bind(&cfg).String(), From: cmp.Or(where, FromDefault),
		})
	}
	return all
}

// UnknownEnv is the COUNTMILL_ variables that no flag has, for a warning. Those that
// Kubernetes sets for services are left out.
func UnknownEnv(environ []string) []string {
	known := map[string]bool{ // of the verbs
		"COUNTMILL_SERVER": true, "COUNTMILL_TIMEOUT": true, "COUNTMILL_TOKEN": true, "COUNTMILL_TOKEN_FILE": true,
	}
	for _, o := range options {
		known[Env(o.name)] = true
	}
	var unknown []string
	for _, pair := range environ {
		name, _, _ := strings.Cut(pair, "=")
		if !strings.HasPrefix(name, "COUNTMILL_") || known[name] {
			continue
		}
		if strings.Contains(name, "_SERVICE_") || strings.Contains(name, "_PORT") {
			continue
		}
		unknown = append(unknown, name)
	}
	slices.Sort(unknown)
	return unknown
}

// NewLogger logs to w as the configuration says.
func NewLogger(cfg Config, w io.Writer) *slog.Logger {
	var level slog.Level
	_ = level.UnmarshalText([]byte(cfg.LogLevel)) // the flag takes level names only
	opts := &slog.HandlerOptions{Level: level, ReplaceAttr: plain}
	if cfg.LogFormat == "json" {
		return slog.New(slog.NewJSONHandler(w, opts))
	}
	return slog.New(slog.NewTextHandler(w, opts))
}

// plain writes an error as its one line, where slog's text would add Pebble's stack
// traces, and a duration as 25s, where its JSON would count nanoseconds. What looks like
// a token is left out, whoever logs it.
func plain(_ []string, a slog.Attr) slog.Attr {
	switch v := a.Value.Any().(type) {
	case error:
		a.Value = slog.StringValue(access.Redact(v.Error()))
	case string:
		a.Value = slog.StringValue(access.Redact(v))
	case time.Duration:
		a.Value = slog.StringValue(v.String())
	}
	return a
}

// FlagHelp is what help says about the flags of the roles.
func FlagHelp(roles Roles) string {
	cfg := Config{Roles: roles}.withDefaults()
	var b strings.Builder
	for _, o := range optionsOf(roles) {
		fmt.Fprintf(&b, "  %s\n", strings.TrimSpace("--"+o.name+" "+o.arg))
		wrap(&b, o.help+" Default "+o.bind(&cfg).String()+". ["+Env(o.name)+"]")
	}
	return b.String()
}

// wrap writes text in lines of at most 80 columns, indented by 6.
func wrap(b *strings.Builder, text string) {
	const indent, width = "      ", 80
	line := indent
	for word := range strings.FieldsSeq(text) {
		if len(line)+1+len(word) > width && line != indent {
			b.WriteString(line + "\n")
			line = indent
		}
		if line != indent {
			line += " "
		}
		line += word
	}
	b.WriteString(line + "\n")
}
