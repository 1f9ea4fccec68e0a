package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
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
// attempt was counted.
func (s *sender) deliver(ctx context.Context, b body) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		s.requests.Add(1)
		accepted, err := s.fleet.writer.post(ctx, b)
		if err == nil {
			if accepted != b.n {
				return fmt.Errorf("request %s: accepted %d increments of %d", b.key, accepted, b.n)
			}
			return s.delivered(ctx, b.n)
		}
		var status *statusError
		if errors.As(err, &status) && !status.repeat() {
			return fmt.Errorf("request %s: %w", b.key, err)
		}
		s.repeats.Add(1)
		select {
		case <-ctx.Done():
			return fmt.Errorf("request %s: %w; last: %w", b.key, ctx.Err(), err)
		case <-time.After(pause):
		}
	}
}

func (s *sender) delivered(ctx context.Context, n int64) error {
	sent := s.sent.Add(n)
	s.progress.set(sent)
	return s.fleet.reached(ctx, sent)
}

// A statusError is an answer with an unexpected status.
type statusError struct {
	status int
	body   string
}

func (e *statusError) Error() string {
	return fmt.Sprintf("%s: %s", http.StatusText(e.status), bytes.TrimSpace([]byte(e.body)))
}

// repeat reports whether the same request may succeed later.
func (e *statusError) repeat() bool {
	switch e.status {
	case http.StatusTooManyRequests, http.StatusServiceUnavailable, http.StatusGatewayTimeout, http.StatusInsufficientStorage:
		return true
	}
	return false
}
