package e2e

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// The load of TestResources: increments and reads a second, of so many counters.
const (
	resourceIncrements = 5_000
	resourceReads      = 200
	resourceCounters   = 1_000
)

// TestResources measures the memory and the CPU time of each role under a bounded load of
// COUNTMILL_TEST_RESOURCES, such as 2m: docs/howto/kubernetes.md has the figures.
func TestResources(t *testing.T) {
	if os.Getenv("COUNTMILL_TEST_RESOURCES") == "" {
		t.Skip("measures for COUNTMILL_TEST_RESOURCES")
	}
	long := lengthOf(t, "COUNTMILL_TEST_RESOURCES", 0)
	t.Run("roles", func(t *testing.T) {
		d := deploy(t)
		aggregator := d.aggregator(t)
		measureResources(t, long, d.publisher(t), d.reader(t), aggregator)
	})
	t.Run("up", func(t *testing.T) {
		up := start(t, nil, "up", "--data", t.TempDir()).ready(t)
		measureResources(t, long, up, up)
	})
}

// measureResources prints the most memory and the CPU time of the processes under the load. Totals must
// be right afterwards.
func measureResources(t *testing.T, long time.Duration, publisher, reader *process, others ...*process) {
	t.Helper()
	all := append([]*process{publisher}, others...)
	if reader != publisher {
		all = append(all, reader)
	}
	idle := make(map[*process]memory)
	for _, p := range all {
		idle[p] = residentOf(t, p)
	}
	// A request waits for the linger and the bus, so many wait at once.
	const workers = 400
	l := startPacedLoad(t, publisher, workers, resourceCounters, workers*perRequest*time.Second/resourceIncrements)
	reads, stop := readAtRate(t, reader)
	began := time.Now()
	select {
	case <-time.After(long):
	case <-t.Context().Done():
	}
	took := time.Since(began).Seconds()
	want := l.end()
	stop()
	t.Logf("%.0f s: %.0f increments/s in requests of %d, %.0f reads/s, %d counters", took, float64(l.accepted())/took, perRequest, float64(reads.Load())/took, len(want))
	reader.exact(t, time.Minute, want)
	for _, p := range all {
		most := residentOf(t, p).most
		p.stop(t)
		cpu := p.cmd.ProcessState.UserTime() + p.cmd.ProcessState.SystemTime()
		t.Logf("%-10s idle %3d MiB, at most %3d MiB, %5.1f s of CPU, %.2f CPUs", p.role, idle[p].now>>20, most>>20, cpu.Seconds(), cpu.Seconds()/took)
	}
}

func residentOf(t *testing.T, p *process) memory {
	t.Helper()
	m, err := memoryOf(p.cmd.Process.Pid)
	if err != nil {
		t.Skip(err)
	}
	return m
}

// readAtRate reads totals, one a request, until stop is called.
func readAtRate(t *testing.T, reader *process) (reads *atomic.Int64, stop func()) {
	t.Helper()
	const readers = 20
	reads = new(atomic.Int64)
	end := make(chan struct{})
	var running sync.WaitGroup
	for r := range readers {
		running.Go(func() {
			tick := time.NewTicker(readers * time.Second / resourceReads)
			defer tick.Stop()
			for i := r; ; i += readers {
				select {
				case <-end:
					return
				case <-tick.C:
				}
				resp, err := client.Get(fmt.Sprintf("%s/v1/totals?counter=c-%d", reader.url, i%resourceCounters))
				if err != nil {
					continue // it is not counted
				}
				_, _ = io.Copy(io.Discard, resp.Body)
				_ = resp.Body.Close()
				if resp.StatusCode == http.StatusOK {
					reads.Add(1)
				}
			}
		})
	}
	var once sync.Once
	stop = func() { once.Do(func() { close(end); running.Wait() }) }
	t.Cleanup(stop)
	return reads, stop
}
