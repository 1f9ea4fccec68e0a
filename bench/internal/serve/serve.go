// Package serve measures how many cached totals a second countmill serves over HTTP. It compares them
// with a bare net/http handler that answers with bytes of the same length.
package serve

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/countmill/countmill/bench/internal/command"
	"github.com/countmill/countmill/bench/internal/load"
	"github.com/countmill/countmill/bench/internal/report"
	"github.com/countmill/countmill/bench/internal/server"
	"github.com/countmill/countmill/bench/internal/system"
	"github.com/countmill/countmill/client"
)

type config struct {
	*command.Flags
	rounds, conns, counters int
	seconds                 time.Duration
}

// A result is one server in one round.
type result struct {
	Server string  `json:"server"`
	Round  int     `json:"round"`
	Rate   float64 `json:"per_second"`
}

// Run is the command.
func Run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	c := &config{Flags: command.NewFlags("serve", time.Hour, stderr)}
	c.IntVar(&c.rounds, "rounds", 7, "how often each server is measured")
	c.DurationVar(&c.seconds, "lasts", 15*time.Second, "how long, in whole seconds")
	c.IntVar(&c.conns, "conns", 64, "connections")
	c.IntVar(&c.counters, "counters", 1000, "counters, asked for in turn, one a request")
	if err := c.Parse(args, map[string]string{"rounds": "1", "lasts": "1s", "counters": "50"}); err != nil {
		return err
	}
	wrk, err := server.Find("wrk")
	if err != nil {
		return err
	}
	ctx, site, err := c.Open(ctx)
	if err != nil {
		return err
	}
	defer site.Close()
	head := report.NewHead(c.Quick)
	if err := head.Print(stdout); err != nil {
		return err
	}
	results, err := c.measure(ctx, site, wrk, stderr)
	if err == nil {
		printTable(stdout, results)
	}
	return errors.Join(err, c.Keep(struct {
		report.Head
		Results []result `json:"results"`
	}{head, results}, stderr))
}

const (
	bare      = "a bare net/http handler"
	memory    = "countmill up, memory:"
	memcached = "countmill up, memcached:"
)

func (c *config) measure(ctx context.Context, site *command.Site, wrk string, log io.Writer) ([]result, error) {
	servers, stop, err := c.start(ctx, site)
	defer stop()
	if err != nil {
		return nil, err
	}
	script := filepath.Join(site.Dir, "get.lua")
	if err := os.WriteFile(script, []byte(c.lua()), 0o600); err != nil {
		return nil, err
	}
	var results []result
	for round := 1; round <= c.rounds; round++ {
		for _, s := range servers {
			_, rate, err := system.Wrk(ctx, wrk, c.conns, c.seconds, script, "http://"+s.addr)
			if err == nil && s.name != bare {
				err = c.check(ctx, s.addr)
			}
			if err != nil {
				return results, fmt.Errorf("%s: %w", s.name, err)
			}
			results = append(results, result{s.name, round, rate})
			fmt.Fprintf(log, "round %d of %d: %s: %s/s\n", round, c.rounds, s.name, report.Short(rate))
		}
	}
	return results, nil
}

// lua requests one counter after another.
func (c *config) lua() string {
	return fmt.Sprintf(`local requests, at = {}, 0
function init()
  for i = 0, %d - 1 do
    requests[i] = wrk.format("GET", string.format(%q, i))
  end
end
function request()
  at = (at + 1) %% %d
  return requests[at]
end
`, c.counters, "/v1/totals?counter="+load.Prefix+"%012d&max_staleness="+staleness.String(), c.counters)
}

// staleness lets nearly all totals be served from the cache.
const staleness = time.Minute

type running struct{ name, addr string }

// start starts every server. stop ends the started ones, also after an error.
func (c *config) start(ctx context.Context, site *command.Site) (servers []running, stop func(), err error) {
	var processes []*server.Process
	stop = func() {
		for _, p := range processes {
			p.Stop()
		}
	}
	start := func(name, path, ready string, args func(addr, dir string) []string) (string, error) {
		addr, _, err := server.FreeAddr()
		if err != nil {
			return "", err
		}
		dir, err := site.Sub("serve")
		if err != nil {
			return "", err
		}
		spec := server.Spec{Name: name, Path: path, Dir: dir, Args: args(addr, dir), Ready: system.Answers("http://" + addr + ready)}
		if ready == "" {
			spec.Ready = server.Dials("tcp", addr)
		}
		p, err := server.Start(ctx, spec)
		if err == nil {
			processes = append(processes, p)
		}
		return addr, err
	}
	addr, err := start("bare", site.Self, "/readyz", func(addr, _ string) []string { return []string{"serve-http", "total", addr} })
	if err != nil {
		return nil, stop, err
	}
	servers = append(servers, running{bare, addr})
	caches := map[string]string{memory: "memory:"}
	if path, err := server.Find("memcached"); err == nil {
		addr, err := start("memcached", path, "", memcachedArgs)
		if err != nil {
			return nil, stop, err
		}
		caches[memcached] = "memcached://" + addr
	}
	for _, name := range []string{memory, memcached} {
		cache, ok := caches[name]
		if !ok {
			continue
		}
		addr, err := start("up", site.Countmill, "/readyz", func(addr, dir string) []string {
			return []string{"up", "--listen", addr, "--data", filepath.Join(dir, "data"), "--cache", cache}
		})
		if err == nil {
			err = c.fill(ctx, addr)
		}
		if err != nil {
			return nil, stop, err
		}
		servers = append(servers, running{name, addr})
	}
	return servers, stop, nil
}

func memcachedArgs(addr, _ string) []string {
	args := []string{"-l", addr}
	if os.Getuid() == 0 {
		args = append(args, "-u", "root")
	}
	return args
}

// count is the total of every counter.
const count = 1000

func (c *config) fill(ctx context.Context, addr string) error {
	var body bytes.Buffer
	for _, name := range load.Names(c.counters) {
		fmt.Fprintf(&body, "{\"counter\":%q,\"delta\":%d}\n", name, count)
	}
	cl, err := client.New("http://" + addr)
	if err != nil {
		return err
	}
	_, err = cl.Do(ctx, client.Request{Method: http.MethodPost, Path: "/v1/increments", Body: body.Bytes(), ContentType: "application/x-ndjson"})
	return err
}

// check makes one more request: the answer must be right, and from the cache.
func (c *config) check(ctx context.Context, addr string) error {
	name := load.Names(c.counters)[c.counters-1]
	cl, err := client.New("http://" + addr)
	if err != nil {
		return err
	}
	got, err := cl.Total(ctx, name, client.WithMaxStaleness(staleness))
	if err != nil {
		return err
	}
	if got.Total != count || got.Source != "cache" {
		return fmt.Errorf("%w: got %+v, want %d from the cache", load.ErrWrong, got, count)
	}
	return nil
}

// printTable prints ratios within rounds.
func printTable(out io.Writer, results []result) {
	fmt.Fprintf(out, "\n| server | totals/s: median (least to most) | times the bare handler |\n| --- | ---: | ---: |\n")
	rates := make(map[string][]float64)
	for _, r := range results {
		rates[r.Server] = append(rates[r.Server], r.Rate)
	}
	for _, name := range []string{bare, memory, memcached} {
		if len(rates[name]) == 0 {
			fmt.Fprintf(out, "| %s | – | MISSING |\n", name)
			continue
		}
		ratios := make([]float64, len(rates[name]))
		for i, rate := range rates[name] {
			ratios[i] = rate / rates[bare][i]
		}
		fmt.Fprintf(out, "| %s | %s | %s |\n", name, report.Spread(rates[name], report.Short), report.Spread(ratios, func(x float64) string { return fmt.Sprintf("%.2f", x) }))
	}
}
