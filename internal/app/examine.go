package app

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/countmill/countmill/backend"
	"github.com/countmill/countmill/internal/httpserver"
)

// Exams are the backends to examine.
type Exams struct{ Store, Bus, Cache bool }

// examTimeout bounds the examination of one backend.
const examTimeout = time.Minute

// fewFiles is the number of open files from which there are enough for most uses: 600 for the store, and a
// few thousand connections. A guess.
const fewFiles = 4096

// Examine looks for mistakes of the backends that the configuration names, from this machine, and of the
// machine if there are any. It opens none as a role does. The error matches ErrUsage.
func Examine(ctx context.Context, cfg Config, which Exams, r *backend.Report) error {
	cfg.Roles = Up // which takes every backend
	var examine []func(context.Context)
	var errs []error
	if which.Store {
		c, err := chooseStore(cfg)
		examine, errs = append(examine, exam("store", c, which.store(c.opener.Examine), r)), append(errs, err)
	}
	if which.Bus {
		c, err := chooseExamined(cfg)
		examine, errs = append(examine, exam("bus", c, c.opener.Examine, r)), append(errs, err)
	}
	if which.Cache {
		c, err := chooseCache(cfg)
		examine, errs = append(examine, exam("cache", c, c.opener.Examine, r)), append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	for _, of := range examine {
		of(ctx)
	}
	if len(examine) > 0 {
		examineFiles(httpserver.OpenFiles(), r)
	}
	return nil
}

// store is run for an account that must be able to write if a bus is examined, too: a role with both is an
// aggregator. Without a bus the role may be a reader.
func (which Exams) store(run func(context.Context, backend.URL, backend.StoreConfig, *backend.Report)) func(context.Context, backend.URL, *backend.Report) {
	if run == nil {
		return nil
	}
	return func(ctx context.Context, u backend.URL, r *backend.Report) {
		run(ctx, u, backend.StoreConfig{ReadOnly: !which.Bus}, r)
	}
}

// chooseExamined takes also the bus of a publisher, which needs no subscription.
func chooseExamined(cfg Config) (choice[backend.Bus], error) {
	cfg.Roles = Publisher
	c, err := chooseBus(cfg)
	if err != nil && c.opener.OneProcess {
		cfg.Roles = Up
		return chooseBus(cfg)
	}
	return c, err
}

func exam[T any](flag string, c choice[T], run func(context.Context, backend.URL, *backend.Report), r *backend.Report) func(context.Context) {
	return func(ctx context.Context) {
		if run == nil {
			r.Skip(flag, c.url.Scheme+": has no checks")
			return
		}
		ctx, cancel := context.WithTimeout(ctx, examTimeout)
		defer cancel()
		run(ctx, c.url, r)
	}
}

// examineFiles is about the number of open files that this process may have; 0 if it is unknown. A running
// countmill may have another limit: doctor does not know its process.
func examineFiles(most uint64, r *backend.Report) {
	const check = "open files"
	if most == 0 {
		r.Skip(check, "the system does not say")
		return
	}
	r.Done(check, fmt.Sprintf("at most %d for doctor and for what its shell starts; /proc/PID/limits has the limit of a running process", most))
	if most < fewFiles {
		r.Find(backend.Finding{
			Check: check, What: fmt.Sprintf("Doctor, and a process that its shell starts, may have %d files and connections open.", most),
			Why: "A countmill with that limit serves fewer connections than 10,000.",
			Do:  "Look at the limit of the running process in /proc/PID/limits. If it is as low, raise it: LimitNOFILE= of systemd, or ulimit -n.", Page: "howto/one-machine.md",
		})
	}
}
