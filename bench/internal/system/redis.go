package system

import (
	"bytes"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/redis/go-redis/v9"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/bench/internal/load"
	"github.com/countmill/countmill/bench/internal/server"
	"github.com/countmill/countmill/publisher"
	"github.com/countmill/countmill/wire"
)

const (
	everysec = "in the server's memory; on disk within a second or two (AOF everysec), a crash loses them; a repeat counts twice"
	always   = "in the AOF, synced (appendfsync always); a repeat counts twice"
	// redisConns is the number of connections that send one command at a time, redis-benchmark's own
	// default.
	redisConns = 50
	// pipelines is the number of go-redis connections with a running pipeline.
	pipelines = 8
)

func redisSystems() []System {
	single := []System{
		redisGo("redis/single/go-redis", "redis/single", "everysec", 1),
		redisC("redis/single/redis-benchmark", "redis/single", "everysec", 1),
	}
	all := single
	for _, depth := range []int{100, 500} {
		all = append(all,
			redisGo(fmt.Sprintf("redis/pipelined/go-redis/%d", depth), "redis/pipelined", "everysec", depth),
			redisC(fmt.Sprintf("redis/pipelined/redis-benchmark/%d", depth), "redis/pipelined", "everysec", depth))
	}
	return append(all,
		redisGo("redis/always/go-redis/100", "redis/always", "always", 100),
		System{
			Name: "redis/coalesced", Ack: "the coalescer's Flush has returned: " + everysec, Loads: names,
			How:    redisHow("everysec") + "; INCRBY of what countmill's publisher has added up, " + strconv.Itoa(coalesced) + " a pipeline",
			Family: "redis/coalesced", Against: "redis/pipelined", Version: redisVersion,
			Open: func(ctx context.Context, at Place) (Instance, error) {
				i := &redisCoalesced{}
				return opened(i, i.open(ctx, at, "everysec"))
			},
		})
}

func redisHow(fsync string) string {
	return "redis-server --appendonly yes --appendfsync " + fsync + ` --save "" on a unix socket`
}

// redisGo counts with go-redis.
func redisGo(name, family, fsync string, depth int) System {
	how := fmt.Sprintf("; go-redis, INCR, %d connections, pipelines of %d", pipelines, depth)
	if depth == 1 {
		how = fmt.Sprintf("; go-redis, INCR, %d connections, one at a time", redisConns)
	}
	ack := map[string]string{"everysec": everysec, "always": always}[fsync]
	return System{
		Name: name, Ack: ack, How: redisHow(fsync) + how, Loads: names, Family: family, Against: "redis/pipelined", Version: redisVersion,
		Open: func(ctx context.Context, at Place) (Instance, error) {
			i := &redisClient{depth: depth}
			return opened(i, i.open(ctx, at, fsync))
		},
	}
}

// redisC counts with redis-benchmark, whose names are one or uniform.
func redisC(name, family, fsync string, depth int) System {
	return System{
		Name: name, Ack: everysec, Loads: []string{"hot", "uniform"}, Family: family, Against: "redis/pipelined",
		How: fmt.Sprintf("%s; redis-benchmark -c %d -P %d INCR", redisHow(fsync), redisConns, depth),
		Version: func() (string, error) {
			if _, err := redisVersion(); err != nil {
				return "", err
			}
			path, err := server.Find("redis-benchmark")
			if err != nil {
				return "", err
			}
			return server.Says(path, "--version")
		},
		Open: func(ctx context.Context, at Place) (Instance, error) {
			i := &redisBenchmark{depth: depth}
			return opened(i, i.open(ctx, at, fsync))
		},
	}
}

func redisVersion() (string, error) {
	path, err := server.Find("redis-server")
	if err != nil {
		return "", err
	}
	return server.Says(path, "--version")
}

// redisServer is a server and its client.
type redisServer struct {
	closers
	socket string
	client *redis.Client
}

func (s *redisServer) open(ctx context.Context, at Place, fsync string) error {
	path, err := server.Find("redis-server")
	if err != nil {
		return err
	}
	s.socket = filepath.Join(at.Dir, "redis.sock")
	s.client = redis.NewClient(&redis.Options{
		Network: "unix", Addr: s.socket, PoolSize: redisConns, MinIdleConns: redisConns, MaxRetries: -1, // a repeat would count twice
		ReadTimeout: 30 * time.Second, WriteTimeout: 30 * time.Second, PoolTimeout: 30 * time.Second,
	})
	s.add(func() { _ = s.client.Close() })
	p, err := server.Start(ctx, server.Spec{
		Name: "redis", Path: path, Dir: at.Dir,
		Args:  []string{"--port", "0", "--unixsocket", s.socket, "--dir", at.Dir, "--appendonly", "yes", "--appendfsync", fsync, "--save", ""},
		Ready: func(ctx context.Context) error { return s.client.Ping(ctx).Err() },
	})
	if err != nil {
		return err
	}
	s.add(p.Stop)
	return nil
}

// Check reads every counter.
func (s *redisServer) Check(ctx context.Context, r *load.Run) error {
	return r.Check(ctx, s.totals)
}

func (s *redisServer) totals(ctx context.Context, names []string) ([]int64, error) {
	values, err := s.client.MGet(ctx, names...).Result()
	if err != nil {
		return nil, err
	}
	got := make([]int64, len(values))
	for i, v := range values {
		if text, ok := v.(string); ok {
			if got[i], err = strconv.ParseInt(text, 10, 64); err != nil {
				return nil, err
			}
		}
	}
	return got, nil
}

type redisClient struct {
	redisServer
	depth int
}

// Count sends pipelines, or one command after another.
func (c *redisClient) Count(ctx context.Context, r *load.Run) error {
	defer r.Stop()
	if c.depth == 1 {
		return r.Walk(ctx, redisConns, 1, func(ctx context.Context, _, _ int, order []uint32) error {
			return c.client.Incr(ctx, r.Names[order[0]]).Err()
		})
	}
	return r.Walk(ctx, pipelines, c.depth, func(ctx context.Context, _, _ int, order []uint32) error {
		pipe := c.client.Pipeline()
		for _, n := range order {
			pipe.Incr(ctx, r.Names[n])
		}
		_, err := pipe.Exec(ctx)
		return err
	})
}

// redisBenchmark measures with the program that comes with Redis, as often as the goal requires.
type redisBenchmark struct {
	redisServer
	depth int
	sent  int64
}

// Count uses redis-benchmark's own figure for the rate.
func (b *redisBenchmark) Count(ctx context.Context, r *load.Run) error {
	path, err := server.Find("redis-benchmark")
	if err != nil {
		return err
	}
	each := int64(100_000)
	for {
		rate, err := b.run(ctx, path, r.Load, each)
		if err != nil {
			return err
		}
		r.Foreign(each, time.Duration(float64(each)/rate*float64(time.Second)))
		b.sent += each
		done, took := r.Done()
		if took >= r.Goal.Most || took >= r.Goal.Least && done >= r.Goal.Increments {
			return nil
		}
		left := max(r.Goal.Least-took, time.Duration(float64(r.Goal.Increments-done)/rate*float64(time.Second)))
		each = max(100_000, int64(rate*min(left, r.Goal.Most-took, 5*time.Second).Seconds()))
	}
}

func (b *redisBenchmark) run(ctx context.Context, path string, l *load.Load, n int64) (rate float64, err error) {
	args := []string{"-s", b.socket, "-c", strconv.Itoa(redisConns), "-P", strconv.Itoa(b.depth), "-n", strconv.FormatInt(n, 10), "--csv"}
	name := l.Names[0]
	if len(l.Names) > 1 {
		args = append(args, "-r", strconv.Itoa(len(l.Names)))
		name = load.Prefix + "__rand_int__"
	}
	out, err := server.Output(ctx, exec.Command(path, append(args, "INCR", name)...))
	if err != nil {
		return 0, err
	}
	rows, err := csv.NewReader(bytes.NewReader(out)).ReadAll()
	if err != nil || len(rows) < 2 || len(rows[1]) < 2 {
		return 0, fmt.Errorf("redis-benchmark says %q: %w", out, errors.Join(err, errors.New("not two rows")))
	}
	return strconv.ParseFloat(rows[1][1], 64)
}

// Check compares the sum of all counters with the requested number. redis-benchmark sends whole
// pipelines on each connection, so it may send more than requested and than its rate includes, but
// never less.
func (b *redisBenchmark) Check(ctx context.Context, r *load.Run) error {
	var sum int64
	const some = 1000
	for from := 0; from < len(r.Names); from += some {
		got, err := b.totals(ctx, r.Names[from:min(from+some, len(r.Names))])
		if err != nil {
			return err
		}
		for _, n := range got {
			sum += n
		}
	}
	stats, err := b.client.Info(ctx, "commandstats").Result()
	if err != nil {
		return err
	}
	_, calls, _ := strings.Cut(stats, "cmdstat_incr:calls=")
	calls, _, _ = strings.Cut(calls, ",")
	if sum < b.sent || calls != strconv.FormatInt(sum, 10) {
		return fmt.Errorf("%w: redis-benchmark was asked for %d increments, Redis saw %s, the totals sum to %d", load.ErrWrong, b.sent, calls, sum)
	}
	r.Note("sent_beyond", float64(sum-b.sent))
	return nil
}

// coalesced is how many INCRBY go in one pipeline.
const coalesced = 500

// redisCoalesced puts countmill's publisher in front of Redis.
type redisCoalesced struct {
	redisServer
	pub *publisher.Publisher
}

func (c *redisCoalesced) open(ctx context.Context, at Place, fsync string) error {
	if err := c.redisServer.open(ctx, at, fsync); err != nil {
		return err
	}
	var err error
	if c.pub, err = publisher.New(redisBus{c.client}, publisher.Config{Linger: -1}); err != nil {
		return err
	}
	c.add(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = c.pub.Close(ctx)
	})
	return nil
}

// Count adds by name, and flushes.
func (c *redisCoalesced) Count(ctx context.Context, r *load.Run) error {
	defer r.Stop()
	err := r.Walk(ctx, runtime.GOMAXPROCS(0), addStep, func(ctx context.Context, _, _ int, order []uint32) error {
		for _, n := range order {
			if err := c.pub.Add(r.Names[n], 1); err != nil {
				if err := again(ctx, err, func() error { return c.pub.Add(r.Names[n], 1) }); err != nil {
					return err
				}
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	_, err = c.pub.Flush(ctx)
	return err
}

// redisBus writes a publisher's batches to Redis.
type redisBus struct{ client *redis.Client }

// Publish returns when Redis has answered. Any error is final: Redis cannot bear a second
// copy.
func (b redisBus) Publish(_ string, messages ...*message.Message) error {
	for _, m := range messages {
		if err := b.write(m); err != nil {
			return fmt.Errorf("%w: %w", countmill.ErrClosed, err)
		}
	}
	return nil
}

func (b redisBus) write(m *message.Message) error {
	batch, err := wire.Decode(m.Payload)
	if err != nil {
		return err
	}
	pipe := b.client.Pipeline()
	for i := range batch.Parts {
		for _, e := range batch.Parts[i].Entries {
			pipe.IncrBy(m.Context(), e.Counter, e.Delta)
			if pipe.Len() == coalesced {
				if _, err := pipe.Exec(m.Context()); err != nil {
					return err
				}
			}
		}
	}
	_, err = pipe.Exec(m.Context())
	return err
}
