package command

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/countmill/countmill/command/cli"
	"github.com/countmill/countmill/internal/transfer"
)

// How often a terminal is drawn anew, and a log gets a line.
const (
	drawEvery = 200 * time.Millisecond
	logEvery  = 10 * time.Second
)

// A progress shows how far a long command is: a moving bar on a terminal, a line from time to time
// elsewhere. Its methods may be called at the same time.
type progress struct {
	out   io.Writer
	live  bool   // a terminal
	verb  string // importing
	what  string // rows
	total int64  // the last value of done; 0 if it is unknown
	began time.Time

	done, count atomic.Int64

	mu      sync.Mutex
	waiting string // for what; empty while there is progress

	stopped chan struct{}
	wg      sync.WaitGroup
}

// progressOn shows the progress of transfers.
func progressOn(out io.Writer) func(verb, what string, total int64) transfer.Progress {
	return func(verb, what string, total int64) transfer.Progress { return startProgress(out, verb, what, total) }
}

func startProgress(out io.Writer, verb, what string, total int64) *progress {
	p := &progress{out: out, live: cli.IsTerminal(out), verb: verb, what: what, total: total, began: time.Now(), stopped: make(chan struct{})}
	p.wg.Go(p.run)
	return p
}

// Add says that more is done, of the total and of the rows.
func (p *progress) Add(done, count int64) {
	p.done.Add(done)
	p.count.Add(count)
	p.mu.Lock()
	p.waiting = ""
	p.mu.Unlock()
}

// Wait says why there is none. A log gets one line, until there is progress again.
func (p *progress) Wait(why string) {
	p.mu.Lock()
	first := p.waiting == ""
	p.waiting = why
	p.mu.Unlock()
	if first && !p.live {
		fmt.Fprintf(p.out, "countmill: waiting: %s\n", why)
	}
}

// Stop ends it and clears its line. It is called once.
func (p *progress) Stop() {
	close(p.stopped)
	p.wg.Wait()
	if p.live {
		fmt.Fprint(p.out, "\r\x1b[K")
	}
}

func (p *progress) run() {
	every := logEvery
	if p.live {
		every = drawEvery
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-p.stopped:
			return
		case <-tick.C:
		}
		if p.live {
			fmt.Fprintf(p.out, "\r\x1b[K%s", p.line(time.Since(p.began)))
		} else {
			fmt.Fprintf(p.out, "countmill: %s\n", p.line(time.Since(p.began)))
		}
	}
}

// line is how far it is after so long.
func (p *progress) line(took time.Duration) string {
	done, count := p.done.Load(), p.count.Load()
	var b strings.Builder
	b.WriteString(p.verb)
	if p.total > 0 {
		done = min(done, p.total)
		if p.live {
			const width = 24
			full := int(width * done / p.total)
			fmt.Fprintf(&b, " [%s%s]", strings.Repeat("#", full), strings.Repeat(".", width-full))
		}
		fmt.Fprintf(&b, " %d %%", 100*done/p.total)
	}
	fmt.Fprintf(&b, "  %d %s", count, p.what)
	if seconds := took.Seconds(); seconds >= 1 {
		fmt.Fprintf(&b, "  %.0f/s", float64(count)/seconds)
	}
	if done > 0 && done < p.total {
		left := time.Duration(float64(took) * float64(p.total-done) / float64(done))
		fmt.Fprintf(&b, "  %s left", left.Round(time.Second))
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.waiting != "" && p.live {
		b.WriteString("  waiting")
	}
	return b.String()
}

// counted is a number of things: 1 row, 2 rows, 2 entries.
func counted[N int | int64](n N, what string) string {
	if n == 1 {
		return fmt.Sprintf("1 %s", what)
	}
	if stem, y := strings.CutSuffix(what, "y"); y {
		what = stem + "ie"
	}
	return fmt.Sprintf("%d %ss", n, what)
}
