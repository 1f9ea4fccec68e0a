// Package cli makes a command line of verbs: parsing, variables of flags, help, completion, and a reference
// page of all flags. A verb describes itself, has its flags in a struct of its own, and runs.
//
// An error names every mistake of flags and variables, each by the name that the caller used.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
)

// A Program is verbs, in the order of the help.
type Program struct {
	Name     string // of the binary
	Env      string // how the variables of flags begin
	Groups   []Group
	Families []Command // whose next word is a verb
	Commands []Command
	// Words are what people type, each line for one verb in its place.
	Words [][]string
	// Head and Foot surround the commands in the overview.
	Head, Foot string
	// HelpGroup is the group of help.
	HelpGroup string

	// Sections of the reference, below its Preface.
	Sections []Section
	Preface  string

	// Explain may add to the error of a verb. Nil leaves it as it is.
	Explain func(v Verb, cmd Command, err error) error
}

// A Group of the overview has the commands with its ID.
type Group struct{ ID, Title string }

// A Command is a word after the name of the program, or two.
type Command struct {
	Path  string // "get", "dead list"
	Group string // in the overview
	Args  string // how the arguments are written; none if it takes none
	Short string // half a line
	Long  string // for a person; ends with a newline
	New   func() Verb
}

// A Verb is one run of a command.
type Verb interface {
	// Flags are bound to fields of the verb, and Flags sets the defaults of these.
	Flags() []Flag
	// Begin comes before Run, when the flags are set.
	Begin(Input)
	Run(ctx context.Context) error
}

// An Input has the inputs of a verb other than its flags.
type Input struct {
	*Parsed
	Args []string // that are no flags
	Host any      // that of the Process

	program *running
}

// A Process runs a program once.
type Process struct {
	Args           []string
	Lookup         func(string) (string, bool) // the value of a variable
	Stdout, Stderr io.Writer
	Host           any // for verbs
}

// running is a Program in a Process.
type running struct {
	*Program
	Process
}

// Execute runs the command line. The path is the verb that it came to.
func (p *Program) Execute(ctx context.Context, of Process) (path string, err error) {
	r := &running{p, of}
	root := r.root()
	args, cmd, err := p.rewrite(root, of.Args)
	if err == nil {
		root.SetArgs(args)
		cmd, err = root.ExecuteContextC(ctx)
	}
	return p.path(cmd), err
}

// ErrUsage is matched by errors that a change of the command line or of the environment can fix.
var ErrUsage = errors.New("usage")

type usageError struct{ text string }

func (e *usageError) Error() string        { return e.text }
func (e *usageError) Is(target error) bool { return target == ErrUsage }

// Usagef is an error of one line for a person. It matches ErrUsage.
func Usagef(format string, args ...any) error { return &usageError{fmt.Sprintf(format, args...)} }

// Quoted is arguments as an error shows them.
func Quoted(args []string) string {
	if len(args) == 0 {
		return "none"
	}
	return strings.Trim(fmt.Sprintf("%q", args), "[]")
}
