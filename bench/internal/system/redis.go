package system

import (
	"bytes"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
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
	redisHow = `redis-server --appendonly yes --appendfsync everysec --save "" on a unix socket`
	// redisConns is the number of redis-benchmark's connections, its own default.
	redisConns = 50
	// pipelines is the number of go-redis connections with a running pipeline.
	pipelines = 8
)

func redisSystems() (all []System) {
	for _, depth := range []int{100, 500} {
		all = append(all,
			redisSystem(fmt.Sprintf("redis/pipelined/go-redis/%d", depth), fmt.Sprintf("go-redis, INCR, %d connections, pipelines of %d", pipelines, depth), names, redisVersion,
				func() redisInstance { return &redisClient{depth: depth} }),
			redisSystem(fmt.Sprintf("redis/pipelined/redis-benchmark/%d", depth), fmt.Sprintf("redis-benchmark -c %d -P %d INCR", redisConns, depth),
				[]string{"hot", "uniform"}, redisBenchmarkVersion, // its names are one or uniform
				func() redisInstance { return &redisBenchmark{depth: depth} }))
	}
	coalesced := redisSystem("redis/coalesced", fmt.Sprintf("INCRBY of what countmill's publisher has added up, %d a pipeline", coalesced), names, redisVersion,
		func() redisInstance { return &redisCoalesced{} })
	coalesced.Ack, coalesced.Family = "the coalescer's Flush has returned: "+everysec, coalesced.Name
	return append(all, coalesced)
}

type redisInstance interface {
	Instance
	open(ctx context.Context, at Place) error
}

func redisSystem(name, how string, loads []string, version func() (string, error), open func() redisInstance) System {
	return System{
		Name: name, Ack: everysec, How: redisHow + "; " + how, Loads: loads, Family: "redis/pipelined", Against: "redis/pipelined", Version: version,
		Open: func(ctx context.Context, at Place) (Instance, error) {
			i := open()
			return opened(i, i.open(ctx, at))
		},
	}
}

func redisBenchmarkVersion() (string, error) {
	if _, err := redisVersion(); err != nil {
		return "", err
	}
	path, err := server.Find("redis-benchmark")
	if err != nil {
		return "", err
	}
	return server.Says(path, "--version")
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

func (s *redisServer) open(ctx context.Context, at Place) error {
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
		Args:  []string{"--port", "0", "--unixsocket", s.socket, "--dir", at.Dir, "--appendonly", "yes", "--appendfsync", "everysec", "--save", ""},
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

// Count sends pipelines.
func (c *redisClient) Count(ctx context.Context, r *load.Run) error {
	defer r.Stop()
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

func (c *redisCoalesced) open(ctx context.Context, at Place) error {
	if err := c.redisServer.open(ctx, at); err != nil {
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
	if err := addByName(ctx, r, c.pub); err != nil {
		return err
	}
	_, err := c.pub.Flush(ctx)
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
