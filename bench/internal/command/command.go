// Package command has the common parts of the bench's commands: flags, and a place to run servers in.
package command

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/countmill/countmill/bench/internal/server"
)

// Flags are the flags of every command.
type Flags struct {
	*flag.FlagSet
	Quick     bool
	dir       string
	countmill string
	timeout   time.Duration
}

// NewFlags returns the flags of a command that ends after timeout by default.
func NewFlags(name string, timeout time.Duration, stderr io.Writer) *Flags {
	f := &Flags{FlagSet: flag.NewFlagSet("bench "+name, flag.ContinueOnError)}
	f.SetOutput(stderr)
	f.BoolVar(&f.Quick, "quick", false, "do a little of everything: shows that everything works; the figures are useless")
	f.StringVar(&f.dir, "dir", "", "keep data below this directory, on the disk to measure (default the system's temporary one)")
	f.StringVar(&f.countmill, "countmill", "", "path of countmill (default: built from this tree)")
	f.DurationVar(&f.timeout, "timeout", timeout, "end everything after this time")
	return f
}

// Parse reads the command line. With -quick, flags that are not on it get their values from quick.
func (f *Flags) Parse(args []string, quick map[string]string) error {
	if err := f.FlagSet.Parse(args); err != nil {
		return err
	}
	if f.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", f.Arg(0))
	}
	if !f.Quick {
		return nil
	}
	named := make(map[string]bool)
	f.Visit(func(g *flag.Flag) { named[g.Name] = true })
	for name, value := range quick {
		if !named[name] {
			if err := f.Set(name, value); err != nil {
				return err
			}
		}
	}
	return nil
}

// A Site is a place for servers: programs, and a directory that is removed afterwards.
type Site struct {
	Dir             string
	Countmill, Self string
	Close           func()
}

// Open makes a site. The returned context ends with -timeout; call Close.
func (f *Flags) Open(ctx context.Context) (context.Context, *Site, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, f.timeout, fmt.Errorf("-timeout %s has passed", f.timeout))
	dir, remove, err := server.TempDir(f.dir)
	if err != nil {
		cancel()
		return nil, nil, err
	}
	s := &Site{Dir: dir, Countmill: f.countmill, Self: self, Close: func() { remove(); cancel() }}
	if s.Countmill == "" {
		if s.Countmill, err = server.Build(ctx, dir); err != nil {
			s.Close()
			return nil, nil, err
		}
	}
	return ctx, s, nil
}

// Sub makes a directory for one measurement.
func (s *Site) Sub(name string) (string, error) {
	dir, err := os.MkdirTemp(s.Dir, name+"-")
	if err != nil {
		return "", err
	}
	return dir, os.Chmod(dir, 0o755)
}
