package sim

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

// fullSize is how many schedules have to hit every fault least times; fewer in proportion, and any
// number of times below tableSize.
const (
	fullSize  = 1_000_000
	least     = 100
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
	s := &simulation{began: time.Now(), said: time.Now(), tallies: make([]Tally, runtime.NumCPU())}
	first, n := firstSeed(), len(s.tallies)
	fmt.Printf("%d schedules from seed %d on, in %d processes\n", *countFlag, first, n)
	var all sync.WaitGroup
	for i := range n {
		from, to := i**countFlag/n, (i+1)**countFlag/n
		all.Go(func() { s.run(t, i, first+uint64(from), to-from) })
	}
	all.Wait()
	tally := s.sum()
	fmt.Print(tally.Table(time.Since(s.began)))
	report(t, &tally, first)
	if tally.Schedules != *countFlag {
		t.Errorf("%d of %d schedules ran", tally.Schedules, *countFlag)
	}
	if *countFlag < tableSize {
		return
	}
	for _, rare := range tally.Rare(least * *countFlag / fullSize) {
		t.Errorf("hit less than %d times in %d schedules: %s", least**countFlag/fullSize, *countFlag, rare)
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
	began time.Time

	mu      sync.Mutex
	tallies []Tally // the latest of each worker
	said    time.Time
}

// run runs worker i to its end.
func (s *simulation) run(t *testing.T, i int, first uint64, schedules int) {
	self, err := os.Executable()
	if err != nil {
		t.Error(err)
		return
	}
	cmd := exec.CommandContext(t.Context(), self, "-test.run", "^TestWorker$", "-test.timeout", "0",
		"-seed", fmt.Sprint(first), "-schedules", fmt.Sprint(schedules))
	cmd.Env, cmd.Stderr = append(os.Environ(), isWorker+"=1"), os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Error(err)
		return
	}
	if err := cmd.Start(); err != nil {
		t.Error(err)
		return
	}
	seed, rest := first, []string(nil)
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var tally Tally
		if n, _ := fmt.Sscanf(lines.Text(), "seed %d", &seed); n == 1 {
			continue
		}
		if json.Unmarshal(lines.Bytes(), &tally) == nil {
			s.take(i, &tally)
			continue
		}
		rest = append(rest, lines.Text())
		rest = rest[max(0, len(rest)-40):]
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v in seed %d\n%s\n%s", err, seed, replay(seed), strings.Join(rest, "\n"))
	}
}

// take takes a tally in, and says now and then how far the workers are.
func (s *simulation) take(i int, tally *Tally) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tallies[i] = *tally
	if time.Since(s.said) < 10*time.Second {
		return
	}
	s.said = time.Now()
	sum := s.sum()
	fmt.Printf("%d of %d schedules, %.0f/s, %d with a violation\n", sum.Schedules, *countFlag, float64(sum.Schedules)/time.Since(s.began).Seconds(), sum.Wrong)
}

// sum adds up the tallies of all workers.
func (s *simulation) sum() (sum Tally) {
	for i := range s.tallies {
		sum.Merge(&s.tallies[i])
	}
	return sum
}
