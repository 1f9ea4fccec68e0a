package billion

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/countmill/countmill/bench/internal/command"
	"github.com/countmill/countmill/bench/internal/server"
	"github.com/countmill/countmill/bench/internal/system"
)

// An up is `countmill up`, always with the same directory.
type up struct {
	spec server.Spec
	addr string

	mu      sync.Mutex // guards the fields below
	process *server.Process
	kills   []float64
	away    time.Duration
	peak    int64
}

func newUp(site *command.Site, data string) (*up, error) {
	addr, _, err := server.FreeAddr()
	if err != nil {
		return nil, err
	}
	return &up{addr: addr, spec: server.Spec{
		Name: "up", Path: site.Countmill, Dir: site.Dir, Args: []string{"up", "--listen", addr, "--data", data},
		Ready: system.Answers("http://" + addr + "/readyz"), Within: 5 * time.Minute,
	}}, nil
}

func (u *up) start(ctx context.Context) error {
	p, err := server.Start(ctx, u.spec)
	u.mu.Lock()
	defer u.mu.Unlock()
	u.process = p
	return err
}

// take takes the process out, so that nobody else uses it.
func (u *up) take() *server.Process {
	u.mu.Lock()
	defer u.mu.Unlock()
	p := u.process
	u.process = nil
	return p
}

func (u *up) stop() {
	if p := u.take(); p != nil {
		p.Stop()
	}
}

// restart ends the process in order and starts it again.
func (u *up) restart(ctx context.Context) error {
	u.stop()
	return u.start(ctx)
}

// killEvery kills the process and starts it again until ctx ends.
func (u *up) killEvery(ctx context.Context, every time.Duration, begin time.Time) error {
	if every == 0 {
		return nil
	}
	for {
		timer := time.NewTimer(every/2 + rand.N(every))
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-timer.C:
		}
		u.watch()
		killed := time.Now()
		u.take().Kill()
		// A process that starts when the last increment is acknowledged must become ready.
		if err := u.start(context.WithoutCancel(ctx)); err != nil {
			return fmt.Errorf("start after kill %d: %w", u.killed()+1, err)
		}
		u.mu.Lock()
		u.kills = append(u.kills, killed.Sub(begin).Seconds())
		u.away += time.Since(killed)
		u.mu.Unlock()
	}
}

func (u *up) killed() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return len(u.kills)
}

// watch records the process's largest memory, and returns the present one.
func (u *up) watch() int64 {
	peak := u.memory("VmHWM")
	u.mu.Lock()
	u.peak = max(u.peak, peak)
	u.mu.Unlock()
	return u.memory("VmRSS")
}

// memory is a line of the process's status in bytes, 0 without a process.
func (u *up) memory(line string) int64 {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.process == nil {
		return 0
	}
	return u.process.Memory(line)
}
