// Command mutate changes the code of a Go module in small ways, one at a time, and reports the changes
// that no test notices.
//
//	mutate [flags] FILE_OR_PACKAGE...
//
// Files and packages belong to the module of -C: wire, ./reader/..., aggregator/plan.go. A change is
// called a mutant. Its name has its place and its kind:
//
//	aggregator/plan.go:61:12 < -> <=
//
// Kinds: comparisons and logic turned, if conditions negated, true and false, + and -, integer
// constants one up and one down; calls, assignments, deletes, sends and defers removed, ifs that leave
// early emptied, appends dropped; neighbours swapped. Code that no test should check is left alone:
// logs, the arguments of errors and panics, capacities, constant durations. Mutants that do not
// type-check are counted, not run.
//
// A mutant reaches the compiler through `go test -overlay`: the tree is never written to. The tests of
// its package run first, then those of the packages that -tests names, then the command of -then. A
// mutant is killed when one fails, cannot allocate or takes too long.
//
// README.md has the rest.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "mutate:", err)
		os.Exit(1)
	}
}

// options are the validated flags.
type options struct {
	dir           string // the module, absolute
	list, check   bool
	results       string
	retry         bool
	ignore        string
	exclude, only *regexp.Regexp
	sample        int
	seed          uint64
	workers       int
	flags         []string
	tests         map[string][]string // package's directory -> further packages
	timeout       time.Duration
	then          string
	thenTimeout   time.Duration
	memoryMiB     int
	race          bool
	filesPackages []string
}

func parseFlags(args []string, stderr io.Writer) (options, error) {
	o := options{tests: map[string][]string{}}
	fs := flag.NewFlagSet("mutate", flag.ContinueOnError)
	fs.SetOutput(stderr)
	fs.Usage = func() {
		fmt.Fprint(stderr, "usage: mutate [flags] FILE_OR_PACKAGE...\n\n")
		fs.PrintDefaults()
	}
	fs.StringVar(&o.dir, "C", ".", "directory of the module whose code is changed")
	fs.BoolVar(&o.list, "list", false, "list the mutants and run nothing")
	fs.BoolVar(&o.check, "check", false, "run nothing, and fail unless each line of -ignore explains one mutant")
	fs.StringVar(&o.results, "results", "", "NDJSON file of verdicts; mutants that it has are not run again")
	fs.BoolVar(&o.retry, "retry", false, "run the survivors in -results again")
	fs.StringVar(&o.ignore, "ignore", "", "`file` of explained mutants, which are not run, with lines \"PACKAGE [FUNC[#N]]: what | kind | why\"")
	exclude := fs.String("exclude", "", "no mutants in statements that match this `regexp`, such as '[sS]tats\\.'")
	only := fs.String("run", "", "only mutants whose name matches this `regexp`, such as 'plan.go:61:'")
	fs.IntVar(&o.sample, "sample", 0, "run a random sample of `N` mutants (default all)")
	fs.Uint64Var(&o.seed, "seed", 1, "seed of -sample")
	fs.IntVar(&o.workers, "workers", 1, "mutants at a time")
	flags := fs.String("flags", "-short -failfast", "flags of go test")
	fs.Func("tests", "further packages whose tests check a package, `PKG=PKG,PKG` (repeatable): wire=publisher,aggregator", func(s string) error {
		pkg, more, ok := strings.Cut(s, "=")
		if !ok {
			return errors.New("want PKG=PKG,PKG")
		}
		for p := range strings.SplitSeq(more, ",") {
			o.tests[filepath.Clean(pkg)] = append(o.tests[filepath.Clean(pkg)], "./"+filepath.Clean(p))
		}
		return nil
	})
	fs.DurationVar(&o.timeout, "timeout", time.Minute, "time-out of one package's tests, the build not counted")
	fs.StringVar(&o.then, "then", "", "shell `command` for survivors of the tests; {overlay} stands for the overlay file")
	fs.DurationVar(&o.thenTimeout, "then-timeout", 10*time.Minute, "time-out of -then")
	fs.IntVar(&o.memoryMiB, "memory", 4096, "limit of a process's memory in `MiB`")
	if err := fs.Parse(args); err != nil {
		return o, err
	}
	o.flags, o.filesPackages = strings.Fields(*flags), fs.Args()
	o.race = slices.Contains(o.flags, "-race")
	var errs []error
	for text, to := range map[*string]**regexp.Regexp{exclude: &o.exclude, only: &o.only} {
		if *text != "" {
			var err error
			*to, err = regexp.Compile(*text)
			errs = append(errs, err)
		}
	}
	for _, n := range []struct {
		name       string
		value, min int
	}{{"-workers", o.workers, 1}, {"-memory", o.memoryMiB, 64}, {"-sample", o.sample, 0}} {
		if n.value < n.min {
			errs = append(errs, fmt.Errorf("%s must be at least %d, got %d", n.name, n.min, n.value))
		}
	}
	if o.check && o.ignore == "" {
		errs = append(errs, errors.New("-check needs the file of explained mutants in -ignore"))
	}
	if len(o.filesPackages) == 0 && !o.check {
		errs = append(errs, errors.New("name files or packages to change"))
	}
	if o.then != "" && !strings.Contains(o.then, "{overlay}") {
		errs = append(errs, errors.New("-then must have {overlay}, or its command would test the unchanged code"))
	}
	dir, err := filepath.Abs(o.dir)
	o.dir = dir
	return o, errors.Join(append(errs, err)...)
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	o, err := parseFlags(args, stderr)
	if err != nil {
		return err
	}
	explained, err := readExplained(o.ignore)
	if err != nil {
		return err
	}
	if o.check {
		return explained.check(ctx, o.dir, o.race)
	}
	pkgs, err := load(ctx, o.dir, o.filesPackages)
	if err != nil {
		return err
	}
	var mutants []mutant
	var invalid []string // file names, one for each mutant that does not compile
	for _, p := range pkgs {
		m, bad := p.mutants(o.race, o.exclude, nil)
		mutants, invalid = append(mutants, m...), append(invalid, bad...)
	}
	if o.only != nil {
		mutants = slices.DeleteFunc(mutants, func(m mutant) bool { return !o.only.MatchString(m.id()) })
	}
	whole := o.only == nil && (o.sample == 0 || o.sample >= len(mutants))
	mutants = sample(mutants, o.sample, o.seed)
	if o.list {
		for _, m := range mutants {
			fmt.Fprintf(stdout, "%s\n\t%s\n\t%s\n\t%s | WHY\n", m.id(), m.source, m.replacement, m.key())
		}
		return nil
	}
	verdicts, err := judge(ctx, o, mutants, explained, stderr)
	if err != nil {
		return err
	}
	report(stdout, mutants, verdicts, invalid)
	explained.report(stdout, mutants, whole)
	return ctx.Err()
}

// sample returns n random mutants in their order; 0 means all.
func sample(mutants []mutant, n int, seed uint64) []mutant {
	if n == 0 || n >= len(mutants) {
		return mutants
	}
	r := rand.New(rand.NewPCG(seed, seed))
	r.Shuffle(len(mutants), func(i, j int) { mutants[i], mutants[j] = mutants[j], mutants[i] })
	mutants = mutants[:n]
	slices.SortFunc(mutants, compareMutants)
	return mutants
}

func compareMutants(a, b mutant) int {
	return cmp.Or(cmp.Compare(a.file, b.file), a.start-b.start, a.at-b.at, cmp.Compare(a.kind, b.kind), cmp.Compare(a.text, b.text))
}
