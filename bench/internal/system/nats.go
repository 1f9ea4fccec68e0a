package system

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/countmill/countmill/bench/internal/load"
	"github.com/countmill/countmill/bench/internal/server"
)

const (
	natsConns   = 4
	natsPending = 4000 // increments under way on each
	natsStream  = "counters"
)

func natsSystems() []System {
	return []System{{
		Name: "nats/async", Ack: "written to the stream's file, synced within two minutes (the default): a crash of the machine loses them; a repeat without Nats-Msg-Id counts twice", Loads: names,
		How:    fmt.Sprintf("nats-server as a Go module in a process of its own; a stream with AllowMsgCounter, Nats-Incr: +1, %d connections with %d acks pending each", natsConns, natsPending),
		Family: "nats/async", Against: "redis/pipelined",
		Version: func() (string, error) { return "nats-server " + natsserver.VERSION + ", nats.go " + nats.Version, nil },
		Open: func(ctx context.Context, at Place) (Instance, error) {
			n := &natsCounters{}
			return opened(n, n.open(ctx, at))
		},
	}}
}

// ServeNATS runs a NATS server with JetStream until the process is ended.
func ServeNATS(ctx context.Context, dir, port string) error {
	number, err := strconv.Atoi(port)
	if err != nil {
		return err
	}
	s, err := natsserver.NewServer(&natsserver.Options{Host: "127.0.0.1", Port: number, JetStream: true, StoreDir: dir, NoSigs: true})
	if err != nil {
		return err
	}
	s.Start()
	<-ctx.Done()
	s.Shutdown()
	s.WaitForShutdown()
	return nil
}

type natsCounters struct {
	closers
	streams []jetstream.JetStream // one for each connection
	stream  jetstream.Stream
	failed  atomic.Pointer[error]
}

func (c *natsCounters) open(ctx context.Context, at Place) error {
	addr, port, err := server.FreeAddr()
	if err != nil {
		return err
	}
	p, err := server.Start(ctx, server.Spec{
		Name: "nats", Path: at.Self, Dir: at.Dir, Args: []string{"serve-nats", at.Dir, port}, Ready: server.Dials("tcp", addr),
	})
	if err != nil {
		return err
	}
	c.add(p.Stop)
	for range natsConns {
		conn, err := nats.Connect("nats://"+addr, nats.NoReconnect())
		if err != nil {
			return err
		}
		c.add(conn.Close)
		js, err := jetstream.New(conn, jetstream.WithPublishAsyncMaxPending(natsPending), jetstream.WithPublishAsyncTimeout(time.Minute),
			jetstream.WithPublishAsyncErrHandler(func(_ jetstream.JetStream, _ *nats.Msg, err error) { c.failed.CompareAndSwap(nil, &err) }))
		if err != nil {
			return err
		}
		c.streams = append(c.streams, js)
	}
	c.stream, err = c.streams[0].CreateStream(ctx, jetstream.StreamConfig{
		Name: natsStream, Subjects: []string{natsStream + ".>"}, AllowMsgCounter: true, AllowDirect: true,
	})
	return err
}

// Count publishes increments and waits until all are acknowledged.
func (c *natsCounters) Count(ctx context.Context, r *load.Run) error {
	defer r.Stop()
	header := nats.Header{"Nats-Incr": []string{"+1"}}
	err := r.Walk(ctx, natsConns, 100, func(_ context.Context, worker, _ int, order []uint32) error {
		for _, n := range order {
			// Without another header of its own, a publish waits only for a free place.
			_, err := c.streams[worker].PublishMsgAsync(&nats.Msg{Subject: natsStream + "." + r.Names[n], Header: header},
				jetstream.WithStallWait(time.Minute), jetstream.WithRetryAttempts(0))
			if err != nil {
				return err
			}
		}
		return c.failure()
	})
	for _, js := range c.streams {
		select {
		case <-js.PublishAsyncComplete():
		case <-ctx.Done():
			return errors.Join(err, ctx.Err())
		}
	}
	return errors.Join(err, c.failure())
}

func (c *natsCounters) failure() error {
	if err := c.failed.Load(); err != nil {
		return *err
	}
	return nil
}

// Check reads the last message of every subject, which has its total.
func (c *natsCounters) Check(ctx context.Context, r *load.Run) error {
	return r.Check(ctx, func(ctx context.Context, names []string) ([]int64, error) {
		got := make([]int64, len(names))
		errs := make([]error, len(names))
		var all sync.WaitGroup
		slots := make(chan struct{}, 16)
		for i, name := range names {
			slots <- struct{}{}
			all.Go(func() {
				got[i], errs[i] = c.total(ctx, name)
				<-slots
			})
		}
		all.Wait()
		return got, errors.Join(errs...)
	})
}

func (c *natsCounters) total(ctx context.Context, name string) (int64, error) {
	msg, err := c.stream.GetLastMsgForSubject(ctx, natsStream+"."+name)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	var value struct {
		Val string `json:"val"`
	}
	if err := json.Unmarshal(msg.Data, &value); err != nil {
		return 0, err
	}
	return strconv.ParseInt(value.Val, 10, 64)
}
