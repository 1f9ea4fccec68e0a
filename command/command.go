// Package command is the command line of countmill as a library: it runs the roles of the
// pipeline and calls them.
//
//	countmill up                 everything in one process, nothing else needed
//	countmill incr page:/home    count one
//	countmill get page:/home     read the total
//	countmill dead list          list increments that could not be counted
//
// A file has a command: its help, its flags, its request and its output. Package cli makes parsing, help,
// completion and docs/reference/flags.md of them.
//
// Exit codes: 0 it worked, 1 it did not, 2 the command line or the environment is wrong,
// 3 verify or recount found something wrong or nothing to check, or status or doctor could not reach the server.
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

	"github.com/countmill/countmill/backend"
	"github.com/countmill/countmill/command/cli"
	"github.com/countmill/countmill/internal/app"
	"github.com/countmill/countmill/internal/auth"
)

// An Option changes what Main takes from the process.
type Option func(*host)

// Args are the arguments after the program's name. Default os.Args[1:].
func Args(args ...string) Option { return func(c *host) { c.argv = args } }

// Environ is the variables, each as NAME=VALUE; the last of several wins. Default os.Environ().
func Environ(environ []string) Option { return func(c *host) { c.environ = environ } }

// Streams are standard input, output and error. Default those of the process.
func Streams(in io.Reader, out, err io.Writer) Option {
	return func(c *host) { c.stdin, c.stdout, c.stderr = in, out, err }
}

// WithStore adds a store of another module: --store SCHEME:... opens it. Its scheme must be a new one.
func WithStore(s backend.Store) Option { return func(c *host) { c.stores = append(c.stores, s) } }

// WithBus adds a bus of another module: --bus SCHEME:... opens it. Its scheme must be a new one.
func WithBus(b backend.Bus) Option { return func(c *host) { c.buses = append(c.buses, b) } }

// WithBuckets adds a place for backups of another module: --backup-root SCHEME://... opens it.
func WithBuckets(b backend.Buckets) Option {
	return func(c *host) { c.buckets = append(c.buckets, b) }
}

// Context ends the command as an interrupt does. With it, Main leaves signals alone.
func Context(ctx context.Context) Option { return func(c *host) { c.ctx = ctx } }

// Main runs the command line and returns its exit code. By default it is that of the process: the
// first interrupt or SIGTERM stops the command, the second ends the process at once.
func Main(options ...Option) int {
	c := host{argv: os.Args[1:], environ: os.Environ(), stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr}
	for _, option := range options {
		option(&c)
	}
	if cli.IsTerminal(c.stdin) {
		c.person = c.stdin
	}
	if c.ctx != nil {
		return run(c.ctx, c)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	signals := make(chan os.Signal, 2) // room for both, so that neither is lost
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-signals
		cancel()
		<-signals
		fmt.Fprintln(os.Stderr, "countmill: ended at once by a second signal")
		os.Exit(1)
	}()
	return run(ctx, c)
}

// A host has what verbs get beside flags and arguments.
type host struct {
	stores  []backend.Store // of other modules
	buses   []backend.Bus
	buckets []backend.Buckets

	ctx            context.Context // of the option; nil for the process's signals
	argv           []string
	environ        []string
	stdin          io.Reader
	stdout, stderr io.Writer
	person         io.Reader // answers of a person; nil if nobody can be asked
}

// lookup is os.LookupEnv for environ. The last of several values wins.
func (c *host) lookup(name string) (string, bool) {
	for i := len(c.environ) - 1; i >= 0; i-- {
		if value, ok := strings.CutPrefix(c.environ[i], name+"="); ok {
			return value, true
		}
	}
	return "", false
}

// run is the command line as a function. It returns the exit code.
func run(ctx context.Context, c host) int {
	p := program()
	if len(c.argv) == 0 {
		fmt.Fprint(c.stderr, p.Overview())
		return 2
	}
	path, err := p.Execute(ctx, cli.Process{Args: c.argv, Lookup: c.lookup, Stdout: c.stdout, Stderr: c.stderr, Host: &c})
	return report(c, err, strings.TrimSpace("countmill help "+path))
}

// report writes an error on one line and returns the exit code.
func report(c host, err error, help string) int {
	if err == nil {
		return 0
	}
	line := auth.Redact(strings.ReplaceAll(strings.TrimSpace(err.Error()), "\n", "; "))
	if errors.Is(err, app.ErrUsage) || errors.Is(err, cli.ErrUsage) {
		fmt.Fprintf(c.stderr, "countmill: %s (see %s)\n", line, help)
		return 2
	}
	fmt.Fprintf(c.stderr, "countmill: %s\n", line)
	_, found := errors.AsType[*inconsistent](err)
	if _, silent := errors.AsType[*unreached](err); found || silent {
		return 3
	}
	return 1
}
