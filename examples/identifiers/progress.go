package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"
)

// A progress is a bar on a terminal, and elsewhere a line for every tenth of the run.
type progress struct {
	out   io.Writer
	bar   bool
	all   int64
	began time.Time

	mu    sync.Mutex
	sent  int64
	shown time.Time
	tenth int64
}

func newProgress(out io.Writer, all int64) *progress {
	p := &progress{out: out, all: all, began: time.Now()}
	if f, ok := out.(*os.File); ok {
		info, err := f.Stat()
		p.bar = err == nil && info.Mode()&os.ModeCharDevice != 0
	}
	return p
}

func (p *progress) set(sent int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sent = max(p.sent, sent)
	switch tenth := 10 * p.sent / p.all; {
	case p.bar && time.Since(p.shown) > 100*time.Millisecond:
		p.shown = time.Now()
		fmt.Fprint(p.out, "\r", p.lineLocked())
	case !p.bar && tenth > p.tenth:
		p.tenth = tenth
		fmt.Fprintln(p.out, p.lineLocked())
	}
}

// done ends the bar's line.
func (p *progress) done() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.bar {
		fmt.Fprint(p.out, "\r", p.lineLocked(), "\n")
	}
}

func (p *progress) lineLocked() string {
	const width = 30
	full := int(width * p.sent / p.all)
	rate := float64(p.sent) / max(time.Since(p.began).Seconds(), 1e-3)
	return fmt.Sprintf("[%s%s] %3d%%  %s of %s increments, %s a second",
		strings.Repeat("#", full), strings.Repeat(".", width-full),
		100*p.sent/p.all, grouped(p.sent), grouped(p.all), grouped(int64(rate)))
}
