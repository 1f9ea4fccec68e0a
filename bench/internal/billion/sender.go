package billion

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/countmill/countmill/bench/internal/load"
	"github.com/countmill/countmill/bench/internal/report"
	"github.com/countmill/countmill/client"
)

// A sender sends bodies 0, 1, 2 and so on.
type sender struct {
	*config
	client *client.Client
	bodies *load.Bodies

	next    atomic.Int64 // body
	done    atomic.Int64 // increments
	resends atomic.Int64
}

func newSender(c *config, addr string) (*sender, error) {
	s := &sender{config: c, bodies: load.NewBodies(c.seed, c.names)}
	var err error
	s.client, err = client.New("http://"+addr, client.WithTimeout(10*time.Minute), client.WithHTTPClient(
		&http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: c.conns, WriteBufferSize: 256 << 10}}))
	return s, err
}

// send returns when everything is acknowledged.
func (s *sender) send(ctx context.Context) error {
	defer s.client.CloseIdleConnections()
	group, ctx := errgroup.WithContext(ctx)
	for range s.conns {
		group.Go(func() error { return s.connection(ctx) })
	}
	return group.Wait()
}

func (s *sender) connection(ctx context.Context) error {
	body, makeBody := []byte(nil), s.bodies.Maker()
	for {
		n := s.next.Add(1) - 1
		increments := min(int64(s.body), s.increments-n*int64(s.body))
		if increments <= 0 {
			return nil
		}
		body = makeBody(body[:0], n, increments)
		if err := s.until202(ctx, fmt.Sprintf("body-%d", n), body); err != nil {
			return err
		}
		s.done.Add(increments)
	}
}

// until202 sends a body under its key until it is known to be counted.
func (s *sender) until202(ctx context.Context, key string, body []byte) error {
	_, err := s.client.Do(ctx, client.Request{
		Method: http.MethodPost, Path: "/v1/increments", Body: body, ContentType: "application/x-ndjson", Key: key,
		Safe: true, OnRetry: func(error) { s.resends.Add(1) },
	})
	if err != nil {
		return fmt.Errorf("%s: %w", key, err)
	}
	return nil
}

// watch reads the memory of up every second, and prints the progress every five.
func (s *sender) watch(ctx context.Context, up *up, begin time.Time, out io.Writer) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	last := sample{}
	for i := 1; ; i++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		now := sample{time.Since(begin).Seconds(), s.done.Load(), up.watch()}
		if i%5 == 0 {
			rate := float64(now.Increments-last.Increments) / (now.Seconds - last.Seconds)
			fmt.Fprintf(out, "%4.0f s: %s of %s, %s/s, %d kills, up has %s\n", now.Seconds, report.Short(float64(now.Increments)),
				report.Short(float64(s.increments)), report.Short(rate), up.killed(), mib(now.RSS))
			last = now
		}
	}
}
