package e2e

import (
	"fmt"
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

// measureResources prints the most memory and the CPU time of the processes under the load.
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
	bodies := make([]string, resourceCounters/perRequest)
	for i := range resourceCounters {
		bodies[i/perRequest] += fmt.Sprintf("{\"counter\":\"c-%d\"}\n", i)
	}
	var sent, read atomic.Int64
	var running sync.WaitGroup
	began := time.Now()
	// Each does something once a period. A request for increments waits for the linger and the bus, so many wait at once.
	each := func(workers int, period time.Duration, do func(i int)) {
		for w := range workers {
			running.Go(func() {
				tick := time.NewTicker(period)
				defer tick.Stop()
				for i := w; time.Since(began) < long; i += workers {
					<-tick.C
					do(i)
				}
			})
		}
	}
	each(400, 400*perRequest*time.Second/resourceIncrements, func(i int) {
		if post(publisher, bodies[i%len(bodies)], "") == http.StatusAccepted {
			sent.Add(perRequest)
		}
	})
	each(20, 20*time.Second/resourceReads, func(i int) {
		if status, _ := reader.get(fmt.Sprintf("/v1/totals?counter=c-%d", i%resourceCounters)); status == http.StatusOK {
			read.Add(1)
		}
	})
	running.Wait()
	took := time.Since(began).Seconds()
	t.Logf("%.0f s: %.0f increments/s in requests of %d, %.0f reads/s", took, float64(sent.Load())/took, perRequest, float64(read.Load())/took)
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
