package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/countmill/countmill/client"
)

// A body is one request: increments as NDJSON under a key of its own.
type body struct {
	key   string
	lines []byte
	n     int64
}

// A sender sends one increment for each identifier, with several concurrent requests.
type sender struct {
	cfg      config
	fleet    *fleet
	progress *progress
	run      string // makes the keys of this run differ from those of others

	sent     atomic.Int64 // increments that were answered with 202
	requests atomic.Int64
	repeats  atomic.Int64 // requests that were sent again
}

func newSender(cfg config, f *fleet, p *progress) *sender {
	return &sender{cfg: cfg, fleet: f, progress: p, run: rand.Text()}
}

func (s *sender) send(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	bodies := make(chan body)
	group.Go(func() error {
		defer close(bodies)
		return s.fill(ctx, bodies)
	})
	for range s.cfg.workers {
		group.Go(func() error {
			for b := range bodies {
				if err := s.deliver(ctx, b); err != nil {
					return err
				}
			}
			return nil
		})
	}
	err := group.Wait()
	s.progress.done()
	if err == nil {
		err = s.fleet.survived()
	}
	return err
}

// fill reads the source and cuts it into requests.
func (s *sender) fill(ctx context.Context, bodies chan<- body) error {
	var b body
	number := 0
	flush := func() error {
		if b.n == 0 {
			return nil
		}
		b.key = fmt.Sprintf("identifiers-%s-%d", s.run, number)
		select {
		case bodies <- b:
		case <-ctx.Done():
			return ctx.Err()
		}
		number, b = number+1, body{}
		return nil
	}
	err := identifiers(s.cfg, func(name string) error {
		line, err := json.Marshal(struct {
			Counter string `json:"counter"`
		}{s.cfg.prefix + name})
		if err != nil {
			return err
		}
		b.lines = append(append(b.lines, line...), '\n')
		if b.n++; b.n < int64(s.cfg.batch) {
			return nil
		}
		return flush()
	})
	if err != nil {
		return err
	}
	return flush()
}

// deliver sends the request until it is accepted. The key makes a repeat harmless, even if an earlier
// try was counted.
func (s *sender) deliver(ctx context.Context, b body) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	s.requests.Add(1)
	text, err := s.fleet.writer.Do(ctx, client.Request{
		Method: http.MethodPost, Path: "/v1/increments", Body: b.lines, ContentType: "application/x-ndjson", Key: b.key, Safe: true,
		OnRetry: func(error) {
			s.requests.Add(1)
			s.repeats.Add(1)
		},
	})
	var answer struct {
		Accepted int64 `json:"accepted"`
	}
	if err == nil {
		err = json.Unmarshal(text, &answer)
	}
	if err != nil {
		return fmt.Errorf("request %s: %w", b.key, err)
	}
	if answer.Accepted != b.n {
		return fmt.Errorf("request %s: accepted %d increments of %d", b.key, answer.Accepted, b.n)
	}
	return s.delivered(ctx, b.n)
}

func (s *sender) delivered(ctx context.Context, n int64) error {
	sent := s.sent.Add(n)
	s.progress.set(sent)
	return s.fleet.reached(ctx, sent)
}
