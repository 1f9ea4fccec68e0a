package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// Verdicts.
const (
	killed       = "killed"
	timedOut     = "killed by time-out"
	notCompiling = "not compiling"
	survived     = "survived"
	isExplained  = "explained"
)

// buildTime is how long go test may take beyond the tests' own time-out.
const buildTime = 5 * time.Minute

// judge gives every mutant a verdict, in the order of mutants. It takes the verdict from the results
// file if there is one, otherwise it runs the tests.
func judge(ctx context.Context, o options, mutants []mutant, explained *explanations, progress io.Writer) ([]record, error) {
	log, err := openResults(o.results)
	if err != nil {
		return nil, err
	}
	defer log.close()
	tmp, err := os.MkdirTemp("", "mutate-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(tmp)
	j := &judges{o: o, tmp: tmp, log: log, progress: progress, records: make([]record, len(mutants))}
	var todo []int
	dirs := map[string]bool{}
	for i, m := range mutants {
		r, done := log.find(m, o.then, o.retry)
		if why := explained.match(m); why != "" {
			r, done = newRecord(m, isExplained), true
		}
		j.records[i] = r
		if !done {
			todo = append(todo, i)
			dirs[m.dir] = true
		}
	}
	if err := j.baseline(ctx, dirs); err != nil {
		return nil, err
	}
	return j.records, j.all(ctx, mutants, todo)
}

// judges share the work of giving verdicts.
type judges struct {
	o        options
	tmp      string
	log      *results
	progress io.Writer
	began    time.Time

	mu      sync.Mutex
	records []record
	done    int
	errs    []error
	stop    context.CancelFunc // nothing more is judged after an error
}

// baseline runs all tests on the unchanged code: if they fail, no mutant is the cause.
func (j *judges) baseline(ctx context.Context, dirs map[string]bool) error {
	overlay := j.unchanged()
	if err := os.WriteFile(overlay, []byte(`{"Replace":{}}`), 0o600); err != nil {
		return err
	}
	for dir := range dirs {
		began := time.Now()
		verdict, out := j.test(ctx, overlay, dir, "-count=1")
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if verdict != survived {
			return fmt.Errorf("the tests of %s fail without a mutant: %s\n%s", dir, verdict, out)
		}
		fmt.Fprintf(j.progress, "tests of %s pass unchanged, %.1f s\n", dir, time.Since(began).Seconds())
	}
	if j.o.then == "" || len(dirs) == 0 {
		return nil
	}
	began := time.Now()
	verdict, out := j.then(ctx, overlay)
	if verdict != survived && ctx.Err() == nil {
		return fmt.Errorf("the command of -then fails without a mutant: %s\n%s", verdict, out)
	}
	fmt.Fprintf(j.progress, "the command of -then passes unchanged, %.1f s\n", time.Since(began).Seconds())
	return ctx.Err()
}

// unchanged is the name of an overlay without a mutant.
func (j *judges) unchanged() string { return filepath.Join(j.tmp, "unchanged.json") }

// all judges the mutants of todo. When ctx ends, the rest keep their empty records.
func (j *judges) all(ctx context.Context, mutants []mutant, todo []int) error {
	ctx, j.stop = context.WithCancel(ctx)
	defer j.stop()
	j.began = time.Now()
	next := make(chan int)
	var wg sync.WaitGroup
	for w := range j.o.workers {
		wg.Go(func() {
			for i := range next {
				r, err := j.one(ctx, mutants[i], j.records[i], filepath.Join(j.tmp, fmt.Sprint(w)))
				if ctx.Err() == nil {
					j.finish(i, r, err, len(todo))
				}
			}
		})
	}
	for _, i := range todo {
		select {
		case next <- i:
		case <-ctx.Done():
		}
	}
	close(next)
	wg.Wait()
	return errors.Join(j.errs...)
}

// one judges m. was is the record of an earlier run: a survivor of the tests goes to the second command
// at once.
func (j *judges) one(ctx context.Context, m mutant, was record, dir string) (record, error) {
	overlay, err := writeOverlay(dir, m)
	if err != nil {
		return record{}, err
	}
	began := time.Now()
	r := newRecord(m, survived)
	if was.Verdict != survived {
		r.Verdict, _ = j.test(ctx, overlay, m.dir)
	}
	if r.Verdict == timedOut {
		// A busy machine makes tests slow too.
		if verdict, _ := j.test(ctx, j.unchanged(), m.dir, "-count=1"); verdict == timedOut {
			return record{}, fmt.Errorf("the tests of %s take over %s without a mutant too: the machine is busy, -timeout is short", m.dir, j.o.timeout)
		}
	}
	r.TestSeconds = time.Since(began).Seconds()
	if r.Verdict == survived && j.o.then != "" {
		began = time.Now()
		r.Then = j.o.then
		r.Verdict, _ = j.then(ctx, overlay)
		r.ThenSeconds = time.Since(began).Seconds()
	}
	return r, nil
}

func (j *judges) finish(i int, r record, err error, todo int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if err == nil {
		err = j.log.write(r)
	}
	if err != nil {
		j.errs = append(j.errs, err)
		j.stop()
		return
	}
	j.records[i] = r
	j.done++
	each := time.Since(j.began) / time.Duration(j.done)
	left := each * time.Duration(todo-j.done)
	fmt.Fprintf(j.progress, "%d/%d, %s left: %s %s\n", j.done, todo, left.Round(time.Second), r.ID, r.Verdict)
}

func writeOverlay(dir string, m mutant) (string, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	file := filepath.Join(dir, filepath.Base(m.file))
	if err := os.WriteFile(file, m.changed(), 0o600); err != nil {
		return "", err
	}
	b, err := json.Marshal(map[string]map[string]string{"Replace": {m.abs: file}})
	if err != nil {
		return "", err
	}
	overlay := filepath.Join(dir, "overlay.json")
	return overlay, os.WriteFile(overlay, b, 0o600)
}

// test runs the tests of the package in dir, then those of the packages that -tests names for it, until
// some fail.
func (j *judges) test(ctx context.Context, overlay, dir string, more ...string) (verdict, out string) {
	for _, p := range append([]string{"./" + dir}, j.o.tests[dir]...) {
		args := slices.Concat([]string{"go", "test", "-overlay", overlay, "-vet=off", "-timeout", j.o.timeout.String()}, j.o.flags, more, []string{p})
		verdict, out = j.command(ctx, j.o.timeout+buildTime, args...)
		switch {
		case verdict != killed:
		case strings.Contains(out, "[build failed]") || strings.Contains(out, "[setup failed]"):
			verdict = notCompiling
		case strings.Contains(out, "panic: test timed out after"):
			verdict = timedOut
		}
		if verdict != survived {
			return verdict, out
		}
	}
	return verdict, out
}

// then runs the second command.
func (j *judges) then(ctx context.Context, overlay string) (verdict, out string) {
	return j.command(ctx, j.o.thenTimeout, "sh", "-c", strings.ReplaceAll(j.o.then, "{overlay}", overlay))
}

// command runs a command that should fail on a mutant, in the module's directory.
func (j *judges) command(ctx context.Context, limit time.Duration, args ...string) (verdict, out string) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	out, err := runBounded(ctx, j.o.dir, j.o.memoryMiB, args...)
	switch {
	case ctx.Err() != nil:
		return timedOut, out
	case err != nil:
		return killed, out + err.Error()
	}
	return survived, out
}
