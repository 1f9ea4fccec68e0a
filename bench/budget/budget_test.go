package budget

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"sync"
	"testing"
	"time"
)

var (
	loadsFlag = flag.Int("loads", 0, "how many random loads; 0: a few")
	firstFlag = flag.Uint64("seed", 1, "seed of the first load")
	knownFlag = flag.String("known", "", "keep the best fixed lingers of each load in this file, and take those that are in it")
)

// A row is the result of a load.
type row struct {
	ratio float64 // entities written with the budget, divided by those with lingers
	p99   float64 // in budgets
}

// TestLoads compares the budget with the best fixed lingers.
func TestLoads(t *testing.T) {
	known := open(t, *knownFlag)
	p99s, ratios := report(each(t, func(t *testing.T, d *deployment) row {
		best, ok := known.get(d.seed)
		if !ok {
			best = search(t, d)
			known.put(t, d.seed, best)
		}
		return measure(t, d, d.budget, best)
	}))
	n := len(p99s)
	but := max(1, n/10)
	if inside := upTo(p99s, 1); inside < n-but || p99s[n-1] > 1.2 {
		t.Errorf("p99 is inside the budget in %d of %d loads and %.3f budgets at worst, want all but %d and 1.2", inside, n, p99s[n-1], but)
	}
	if within := upTo(ratios, 1.15); within < n-but || ratios[n-1] > 1.5 || ratios[(n-1)/2] > 1 {
		t.Errorf("writes are within 15 %% in %d of %d loads, %.3f times at worst and %.3f at the median, want all but %d, 1.5 and 1",
			within, n, ratios[n-1], ratios[(n-1)/2], but)
	}
}

// TestDefaults compares the default lingers with a budget that equals their p99.
func TestDefaults(t *testing.T) {
	if *loadsFlag == 0 {
		t.Skip("no -loads")
	}
	_, ratios := report(each(t, func(t *testing.T, d *deployment) row {
		o := run(t, d, setting{})
		return measure(t, d, o.p99, fixed{250 * time.Millisecond, 100 * time.Millisecond, o.p99, o.shards, o.markers})
	}))
	if median := ratios[(len(ratios)-1)/2]; median > 1 {
		t.Errorf("%.3f times the writes at the median, want no more", median)
	}
}

// each runs f on every load.
func each(t *testing.T, f func(t *testing.T, d *deployment) row) []row {
	loads := *loadsFlag
	if loads == 0 {
		loads = 5
	}
	rows := make([]row, loads)
	t.Run("load", func(t *testing.T) {
		for i := range rows {
			t.Run(fmt.Sprint(*firstFlag+uint64(i)), func(t *testing.T) {
				t.Parallel()
				rows[i] = f(t, draw(*firstFlag+uint64(i)))
			})
		}
	})
	if t.Failed() {
		t.FailNow()
	}
	return rows
}

// measure runs a load with a budget, and compares it with the outcome of lingers.
func measure(t *testing.T, d *deployment, budget time.Duration, other fixed) row {
	t.Helper()
	o := run(t, d, setting{budget: budget})
	r := row{p99: float64(o.p99) / float64(budget), ratio: float64(o.written()) / float64(other.Shards+other.Markers)}
	t.Logf("p99 %.3f of the budget of %s, %.3f times the writes: %d shards, %d markers; with lingers of %s and %s: %d, %d\n%s",
		r.p99, budget.Round(time.Millisecond), r.ratio, o.shards, o.markers, other.Linger, max(other.Window, 0), other.Shards, other.Markers, d)
	return r
}

// report prints the distributions of p99 and of writes, and returns them in order.
func report(rows []row) (p99s, ratios []float64) {
	for _, r := range rows {
		p99s, ratios = append(p99s, r.p99), append(ratios, r.ratio)
	}
	slices.Sort(p99s)
	slices.Sort(ratios)
	n := len(rows)
	line := func(label string, of []float64) {
		at := func(percent int) float64 { return of[(n-1)*percent/100] }
		fmt.Printf("| %s | %.2f | %.2f | %.2f | %.2f |\n", label, at(50), at(90), at(95), at(100))
	}
	fmt.Printf("\n| %d loads | median | 90 %% | 95 %% | worst |\n| --- | ---: | ---: | ---: | ---: |\n", n)
	line("p99 of staleness, in budgets", p99s)
	line("entities written, times those with the lingers", ratios)
	fmt.Printf("\np99 inside the budget: %d of %d; writes within 15 %% of the lingers', or fewer: %d of %d\n", upTo(p99s, 1), n, upTo(ratios, 1.15), n)
	return p99s, ratios
}

// upTo returns how many values are at most that large.
func upTo(sorted []float64, most float64) int {
	n, _ := slices.BinarySearchFunc(sorted, most, func(x, most float64) int {
		if x <= most {
			return -1
		}
		return 1
	})
	return n
}

// A memory keeps the results of searches, which take twenty times as long as the rest.
type memory struct {
	path string

	mu   sync.Mutex
	best map[uint64]fixed
}

func open(t *testing.T, path string) *memory {
	m := &memory{path: path, best: make(map[uint64]fixed)}
	if path == "" {
		return m
	}
	text, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(text, &m.best)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return m
}

func (m *memory) get(seed uint64) (fixed, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f, ok := m.best[seed]
	return f, ok
}

func (m *memory) put(t *testing.T, seed uint64, f fixed) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.best[seed] = f
	if m.path == "" {
		return
	}
	text, err := json.Marshal(m.best)
	if err == nil {
		err = os.WriteFile(m.path, text, 0o644)
	}
	if err != nil {
		t.Error(err)
	}
}
