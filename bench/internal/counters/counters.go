// Package counters measures what a counter costs as their number grows: bytes on disk, memory, the
// processor's time of an increment, the time of a read, of a leaderboard and of a start after kill -9.
package counters

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/backend/httpbus"
	"github.com/countmill/countmill/bench/internal/command"
	"github.com/countmill/countmill/bench/internal/load"
	"github.com/countmill/countmill/bench/internal/report"
	"github.com/countmill/countmill/bench/internal/server"
	"github.com/countmill/countmill/bench/internal/system"
	"github.com/countmill/countmill/client"
	"github.com/countmill/countmill/publisher"
)

type config struct {
	*command.Flags
	from, most   int
	board, reads int
	busy         time.Duration
	drop         bool
}

// Run is the command.
func Run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	c := &config{Flags: command.NewFlags("counters", 6*time.Hour, stderr)}
	c.IntVar(&c.from, "from", 1_000_000, "counters of the first measurement; each further one has ten times as many")
	c.IntVar(&c.most, "most", 10_000_000, "counters of the last measurement; 1 million take some 40 MB of disk")
	c.IntVar(&c.board, "board", 10_000_000, "most counters for which a leaderboard is measured")
	c.IntVar(&c.reads, "reads", 1000, "totals that are read, one after the other")
	c.DurationVar(&c.busy, "busy", 20*time.Second, "how long increments are sent to all counters alike")
	c.BoolVar(&c.drop, "drop-caches", false, "drop the system's caches, of all files, before totals are read from the disk; needs root")
	if err := c.Parse(args, map[string]string{"from": "1000", "most": "10000", "reads": "20", "busy": "500ms"}); err != nil {
		return err
	}
	if c.from < 1 || c.most < c.from || c.reads < 1 {
		return fmt.Errorf("-from and -reads must be at least 1, -most no less than -from; got %d, %d, %d", c.from, c.reads, c.most)
	}
	ctx, site, err := c.Open(ctx)
	if err != nil {
		return err
	}
	defer site.Close()
	if err := report.Head(stdout, c.Quick); err != nil {
		return err
	}
	for n := c.from; n <= c.most; n *= 10 {
		fmt.Fprintf(stdout, "\n| %s counters | |\n| --- | ---: |\n", report.Short(float64(n)))
		m := &measurement{config: c, n: n, out: stdout}
		if err := m.run(ctx, site); err != nil {
			return fmt.Errorf("%d counters: %w", n, err)
		}
	}
	return nil
}

// A measurement is of one number of counters, in a directory of its own.
type measurement struct {
	*config
	n    int
	out  io.Writer
	spec server.Spec
	addr string
	data string

	process *server.Process
	client  *client.Client
}

func (m *measurement) say(what, format string, args ...any) {
	fmt.Fprintf(m.out, "| %s | %s |\n", what, fmt.Sprintf(format, args...))
}

func (m *measurement) run(ctx context.Context, site *command.Site) error {
	dir, err := site.Sub("counters")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if m.addr, _, err = server.FreeAddr(); err != nil {
		return err
	}
	m.data = filepath.Join(dir, "data")
	m.spec = server.Spec{
		Name: "up", Path: site.Countmill, Dir: dir, Args: []string{"up", "--listen", m.addr, "--data", m.data},
		Ready: system.Answers("http://" + m.addr + "/readyz"), Within: 10 * time.Minute,
	}
	if m.client, err = client.New("http://"+m.addr, client.WithTimeout(time.Hour)); err != nil {
		return err
	}
	defer m.client.CloseIdleConnections()
	defer func() {
		if m.process != nil {
			m.process.Stop()
		}
	}()
	for _, step := range []func(context.Context) error{m.start, m.load, m.uniform, m.kill, m.cold, m.leaderboard} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (m *measurement) start(ctx context.Context) (err error) {
	m.process, err = server.Start(ctx, m.spec)
	return err
}

// name is the i-th counter in an order that jumps about: consecutive names would be the best case for
// a database in the order of names.
func (m *measurement) name(i int) string {
	const step = 7_654_321 // has no divisor in common with a power of ten
	return fmt.Sprintf("%s%012d", load.Prefix, i*step%m.n)
}

// send adds 1 to counters until next returns "", and returns how many when all are counted.
func (m *measurement) send(ctx context.Context, next func() string) (sent int, err error) {
	bus, err := httpbus.Open("http://" + m.addr)
	if err != nil {
		return 0, err
	}
	defer bus.Close()
	pub, err := publisher.New(bus, publisher.Config{})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, pub.Close(ctx)) }()
	for name := next(); name != ""; name = next() {
		for {
			err := pub.Add(name, 1)
			if err == nil {
				break
			}
			if !errors.Is(err, countmill.ErrOverloaded) {
				return sent, err
			}
			if err := system.Wait(ctx, time.Millisecond); err != nil {
				return sent, err
			}
		}
		sent++
	}
	_, err = pub.Flush(ctx)
	return sent, err
}

// load counts each counter once.
func (m *measurement) load(ctx context.Context) error {
	begin, cpu, i := time.Now(), m.process.CPU(), 0
	_, err := m.send(ctx, func() string {
		if i++; i > m.n {
			return ""
		}
		return m.name(i - 1)
	})
	if err != nil {
		return err
	}
	m.say("new counters a second", "%s", report.Short(float64(m.n)/time.Since(begin).Seconds()))
	m.say("processor time of a new counter", "%s", each(m.process.CPU()-cpu, m.n))
	// A start writes what is only in the log.
	m.process.Stop()
	if err := m.start(ctx); err != nil {
		return err
	}
	size, err := server.Tables(m.data)
	m.say("on disk, names of 20 bytes", "%.1f bytes", float64(size)/float64(m.n))
	return err
}

// uniform counts on all counters alike.
func (m *measurement) uniform(ctx context.Context) error {
	begin, cpu := time.Now(), m.process.CPU()
	sent, err := m.send(ctx, m.draw(func() bool { return time.Since(begin) < m.busy }))
	if err != nil {
		return err
	}
	m.say("increments a second, uniform over all", "%s", report.Short(float64(sent)/time.Since(begin).Seconds()))
	m.say("processor time of such an increment", "%s", each(m.process.CPU()-cpu, sent))
	m.say("memory afterwards, RSS", "%s", mib(m.process.Memory("VmRSS")))
	return nil
}

// draw returns names while more holds.
func (m *measurement) draw(more func() bool) func() string {
	random := rand.New(rand.NewPCG(1, 2))
	return func() string {
		if !more() {
			return ""
		}
		return m.name(random.IntN(m.n))
	}
}

// kill kills the process under load, and measures the time until it answers a total.
func (m *measurement) kill(ctx context.Context) error {
	sending, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() {
		_, err := m.send(sending, m.draw(func() bool { return sending.Err() == nil }))
		ended <- err
	}()
	err := system.Wait(ctx, m.busy/4)
	m.process.Kill()
	cancel()
	<-ended // its last batches have no outcome
	if err != nil {
		return err
	}
	begin := time.Now()
	spec := m.spec
	m.spec.Ready = func(ctx context.Context) error {
		_, err := system.Totals(ctx, m.addr, []string{m.name(0)})
		return err
	}
	err = m.start(ctx)
	m.spec = spec
	m.say("from the start after kill -9 under load to the first total", "%.2f s", time.Since(begin).Seconds())
	return err
}

// cold reads totals after a start, and the same once more.
func (m *measurement) cold(ctx context.Context) error {
	m.process.Stop()
	how := "after a start"
	if m.drop {
		how = "cold"
		syscall.Sync()
		if err := os.WriteFile("/proc/sys/vm/drop_caches", []byte("3"), 0); err != nil {
			return err
		}
	}
	if err := m.start(ctx); err != nil {
		return err
	}
	for _, how := range []string{how, "warm"} {
		i := 0
		next := m.draw(func() bool { i++; return i <= m.reads })
		took := make([]time.Duration, 0, m.reads)
		for name := next(); name != ""; name = next() {
			begin := time.Now()
			total, err := m.client.Total(ctx, name, client.WithMaxStaleness(0))
			if err == nil && total.Total < 1 {
				err = fmt.Errorf("%w: %s is %d", load.ErrWrong, name, total.Total)
			}
			if err != nil {
				return err
			}
			took = append(took, time.Since(begin))
		}
		slices.Sort(took)
		m.say("a total, "+how+", p50 / p99", "%.2f / %.2f ms", ms(took[len(took)/2]), ms(took[len(took)*99/100]))
	}
	return nil
}

// leaderboard makes an index of all counters, and asks for its first.
func (m *measurement) leaderboard(ctx context.Context) error {
	if m.n > m.board {
		return nil
	}
	begin := time.Now()
	if _, err := m.client.CreateIndex(ctx, "all", "page:*", "all"); err != nil {
		return err
	}
	for {
		all, err := m.client.Indexes(ctx)
		if err != nil {
			return err
		}
		if all.Indexes[0].State == "serving" {
			break
		}
		if err := system.Wait(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
	m.say("an index of all", "%.1f s", time.Since(begin).Seconds())
	begin = time.Now()
	cpu := m.process.CPU()
	for {
		_, err := m.client.Top(ctx, client.BoardQuery{Index: "all"}, 100)
		if err == nil {
			break
		}
		if !errors.Is(err, countmill.ErrUnavailable) { // the first look takes longer than a request
			return err
		}
	}
	m.say("a leaderboard of all", "%.1f s, %.1f s of a processor", time.Since(begin).Seconds(), (m.process.CPU() - cpu).Seconds())
	m.say("memory afterwards, RSS", "%s", mib(m.process.Memory("VmRSS")))
	return nil
}

func each(cpu time.Duration, n int) string {
	return strconv.FormatFloat(float64(cpu.Nanoseconds())/1000/float64(n), 'f', 2, 64) + " µs"
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func mib(bytes int64) string { return fmt.Sprintf("%.0f MiB", float64(bytes)/(1<<20)) }
