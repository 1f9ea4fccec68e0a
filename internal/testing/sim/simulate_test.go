package sim

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

// fullSize is how many schedules have to hit every fault and every answer least times;
// fewer in proportion, and any number of times below tableSize.
const (
	fullSize  = 1_000_000
	least     = 1_000
	tableSize = 20_000
)

// isWorker is the variable that makes a test process one of the workers of TestSimulate.
const isWorker = "COUNTMILL_SIM_WORKER"

// TestSimulate runs -schedules in as many processes as there are processors, each with its own range
// of seeds, and prints their tally.
func TestSimulate(t *testing.T) {
	if *countFlag == 0 || os.Getenv(isWorker) != "" {
		t.Skip("no -schedules")
	}
	began, first := time.Now(), firstSeed()
	s := newSimulation(first, *countFlag, runtime.NumCPU())
	fmt.Printf("%d schedules, seeds %d to %d, in %d processes\n", s.schedules, first, first+uint64(s.schedules)-1, len(s.workers))
	stop := s.progress(began, 10*time.Second)
	err := s.run(t)
	stop()
	tally := s.sum()
	fmt.Printf("seeds %d to %d\n%s", first, first+uint64(s.schedules)-1, tally.Table(time.Since(began)))
	if err != nil {
		t.Error(err)
	}
	report(t, &tally, first)
	if tally.Schedules != s.schedules {
		t.Errorf("%d of %d schedules ran", tally.Schedules, s.schedules)
	}
	if s.schedules < tableSize {
		return
	}
	for _, rare := range tally.Rare(least * s.schedules / fullSize) {
		t.Errorf("hit less than %d times in %d schedules: %s", least*s.schedules/fullSize, s.schedules, rare)
	}
}

// TestWorker runs its range of seeds and prints a tally now and then, the last one at the
// end.
func TestWorker(t *testing.T) {
	if os.Getenv(isWorker) == "" {
		t.Skip("TestSimulate starts it")
	}
	var tally Tally
	out := json.NewEncoder(os.Stdout)
	said := time.Now()
	for i := range *countFlag {
		seed := *seedFlag + uint64(i)
		fmt.Println("seed", seed) // what TestSimulate knows if this one ends the process
		tally.Add(run(t, seed, false))
		if time.Since(said) > time.Second {
			said = time.Now()
			_ = out.Encode(&tally)
		}
	}
	_ = out.Encode(&tally)
}

// A simulation is the workers of a TestSimulate.
type simulation struct {
	schedules int
	workers   []*worker
}

// A worker is a process with a range of seeds.
type worker struct {
	first     uint64
	schedules int

	seed uint64 // that it runs

	mu    sync.Mutex
	tally Tally // the latest it has said
}

func newSimulation(first uint64, schedules, workers int) *simulation {
	s := &simulation{schedules: schedules}
	for i := range workers {
		from, to := i*schedules/workers, (i+1)*schedules/workers
		s.workers = append(s.workers, &worker{first: first + uint64(from), schedules: to - from})
	}
	return s
}

// run runs all workers to their end.
func (s *simulation) run(t *testing.T) error {
	t.Helper()
	errs := make([]error, len(s.workers))
	var all sync.WaitGroup
	for i, w := range s.workers {
		all.Go(func() { errs[i] = w.run(t) })
	}
	all.Wait()
	var problems []string
	for i, err := range errs {
		if err != nil {
			problems = append(problems, fmt.Sprintf("the process with seeds %d to %d: %v", s.workers[i].first,
				s.workers[i].first+uint64(s.workers[i].schedules)-1, err))
		}
	}
	if problems != nil {
		return fmt.Errorf("%s", strings.Join(problems, "\n"))
	}
	return nil
}

// run runs the process and reads its output.
func (w *worker) run(t *testing.T) error {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(t.Context(), self, "-test.run", "^TestWorker$", "-test.timeout", "0",
		"-seed", fmt.Sprint(w.first), "-schedules", fmt.Sprint(w.schedules))
	cmd.Env = append(os.Environ(), isWorker+"=1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return err
	}
	rest := w.listen(out)
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("%w in seed %d\n%s\n%s", err, w.seed, replay(w.seed), rest)
	}
	return nil
}

// listen takes in tallies, and returns the end of what else is said.
func (w *worker) listen(out io.Reader) string {
	var rest []string
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var tally Tally
		if n, err := fmt.Sscanf(lines.Text(), "seed %d", &w.seed); n == 1 && err == nil {
			continue
		}
		if json.Unmarshal(lines.Bytes(), &tally) == nil {
			w.mu.Lock()
			w.tally = tally
			w.mu.Unlock()
			continue
		}
		rest = append(rest, lines.Text())
		rest = rest[max(0, len(rest)-40):]
	}
	return strings.Join(rest, "\n")
}

func (w *worker) latest() Tally {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.tally
}

// sum adds up the tallies of all workers.
func (s *simulation) sum() (sum Tally) {
	for _, w := range s.workers {
		tally := w.latest()
		sum.Merge(&tally)
	}
	return sum
}

// progress says now and then how far the workers are, until stop is called.
func (s *simulation) progress(began time.Time, every time.Duration) (stop func()) {
	tick, done := time.NewTicker(every), make(chan struct{})
	var wait sync.WaitGroup
	wait.Go(func() {
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				sum := s.sum()
				rate := float64(sum.Schedules) / time.Since(began).Seconds()
				left := time.Duration(float64(s.schedules-sum.Schedules) / max(rate, 1e-3) * float64(time.Second))
				fmt.Printf("%d of %d schedules, %.0f/s, %s left, %d with a violation\n",
					sum.Schedules, s.schedules, rate, left.Round(time.Second), sum.Wrong)
			case <-done:
				return
			}
		}
	})
	return func() { close(done); wait.Wait() }
}
