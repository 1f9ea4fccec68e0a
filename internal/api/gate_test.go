package api

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

func TestGateWaitsForThoseInside(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		ask := func() int {
			if !g.enter() {
				return 503
			}
			defer g.leave()
			time.Sleep(time.Minute)
			return 202
		}
		inside := make(chan int, 1)
		go func() { inside <- ask() }()
		synctest.Wait()
		begin := time.Now()
		go func() {
			time.Sleep(time.Second)
			if got := ask(); got != 503 {
				t.Errorf("a request after the gate was shut: got %d, want 503", got)
			}
		}()
		if left := g.shut(t.Context()); left != 0 || time.Since(begin) != time.Minute {
			t.Errorf("shut returned %d after %s, want 0 after 1m", left, time.Since(begin))
		}
		if got := <-inside; got != 202 {
			t.Errorf("the request inside: got %d, want 202", got)
		}
	})
}

func TestGateGivesUp(t *testing.T) {
	t.Parallel()
	g := newGate()
	g.enter()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if left := g.shut(ctx); left != 1 {
		t.Errorf("shut returned %d, want 1", left)
	}
	g.leave()
}
