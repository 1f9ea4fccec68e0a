package cli

import (
	"cmp"
	"errors"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
)

// A Flag is one of a verb. Parsing, help, completion and the reference are made of them.
type Flag struct {
	Name  string
	Arg   string      // how help writes the value; empty for a switch
	Value pflag.Value // bound to a field, which has the default
	Help  string      // ends with a period

	env     bool
	words   string
	section string
	other   string
	why     string
}

// New is a flag with a value.
func New(name, arg string, value pflag.Value, help string) Flag {
	return Flag{Name: name, Arg: arg, Value: value, Help: help}
}

// Switch is a flag without a value.
func Switch(name string, to *bool, help string) Flag {
	return Flag{Name: name, Value: boolValue{to}, Help: help}
}

// FromEnv lets a variable set the flag too.
func (f Flag) FromEnv() Flag { f.env = true; return f }

// Default is the default in words, if the value cannot say it.
func (f Flag) Default(words string) Flag { f.words = words; return f }

// Instead says that the flag and the other one are for one setting. Only one of them may be given, and a flag
// wins over the variable of the other.
func (f Flag) Instead(other, why string) Flag { f.other, f.why = other, why; return f }

// In puts the flag into a section of the reference that is not that of its verb.
func (f Flag) In(section string) Flag { f.section = section; return f }

// letter is the name of a flag with one letter, which may be written with one dash.
func (f Flag) letter() string {
	if len(f.Name) == 1 {
		return f.Name
	}
	return ""
}

// variable is the environment variable of the flag, empty if it has none.
func (f Flag) variable(begin string) string {
	if !f.env {
		return ""
	}
	return variable(begin, f.Name)
}

func variable(begin, name string) string {
	return begin + strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
}

// shownDefault is empty for a switch without a variable: it is off.
func (f Flag) shownDefault() string {
	if f.words == "" && f.isSwitch() && !f.env {
		return ""
	}
	return cmp.Or(f.words, f.Value.String())
}

func (f Flag) isSwitch() bool { return f.Value.Type() == "bool" }

// A boolValue may be written without a value.
type boolValue struct{ to *bool }

func (v boolValue) String() string { return strconv.FormatBool(*v.to) }
func (v boolValue) Type() string   { return "bool" }

func (v boolValue) Set(s string) error {
	switch s {
	case "true", "false":
		*v.to = s == "true"
		return nil
	}
	return errors.New("must be true or false")
}
