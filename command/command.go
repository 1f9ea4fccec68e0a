// Package command is the command line of countmill as a library: it runs the roles of the
// pipeline and talks to them.
//
//	countmill up                 everything in one process, nothing else needed
//	countmill incr page:/home    count one
//	countmill get page:/home     read the total
//	countmill dead list          what could not be counted
//
// Exit codes: 0 it worked, 1 it did not, 2 the command line or the environment is wrong,
// 3 verify found something wrong.
package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/countmill/countmill/internal/access"
	"github.com/countmill/countmill/internal/app"
)

// Main runs the command line of this process and returns its exit code. The first interrupt or
// SIGTERM stops the command; the second ends the process at once.
func Main() int {
	ctx, cancel := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 2) // room for both, so that neither is lost
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-signals
		cancel()
		<-signals
		fmt.Fprintln(os.Stderr, "countmill: ended at once by a second signal")
		os.Exit(1)
	}()
	c := call{args: os.Args[1:], environ: os.Environ(), stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr}
	if isTerminal(os.Stdin) {
		c.person = os.Stdin
	}
	return run(ctx, c)
}

// A call is what a command gets from the outside.
type call struct {
	args           []string
	environ        []string
	stdin          io.Reader
	stdout, stderr io.Writer
	person         io.Reader // what somebody types who is asked; nil where nobody can be
}

// lookup is os.LookupEnv for environ, where the last of several wins.
func (c call) lookup(name string) (string, bool) {
	for i := len(c.environ) - 1; i >= 0; i-- {
		if value, ok := strings.CutPrefix(c.environ[i], name+"="); ok {
			return value, true
		}
	}
	return "", false
}

// run is the command line as a function. It returns the exit code.
func run(ctx context.Context, c call) int {
	if len(c.args) == 0 {
		fmt.Fprint(c.stderr, overview())
		return 2
	}
	name := c.args[0]
	c.args = c.args[1:]
	if name == "-h" || name == "--help" {
		name = "help"
	}
	if name == "--version" {
		name = "version"
	}
	cmd, ok := find(name)
	if !ok {
		return report(c, app.Usagef("unknown command %q (try one of: %s)", name, names()), "countmill help")
	}
	err := cmd.run(ctx, c)
	if errors.Is(err, app.ErrHelp) {
		fmt.Fprint(c.stdout, cmd.help())
		return 0
	}
	return report(c, err, "countmill help "+cmd.name)
}

// report writes an error on one line and returns the exit code.
func report(c call, err error, help string) int {
	if err == nil {
		return 0
	}
	line := access.Redact(strings.ReplaceAll(strings.TrimSpace(err.Error()), "\n", "; "))
	if errors.Is(err, app.ErrUsage) {
		fmt.Fprintf(c.stderr, "countmill: %s (see %s)\n", line, help)
		return 2
	}
	fmt.Fprintf(c.stderr, "countmill: %s\n", line)
	if _, found := errors.AsType[*inconsistent](err); found {
		return 3
	}
	return 1
}
