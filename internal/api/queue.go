package api

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/internal/fair"
)

// A queue admits requests to the sender. The sender answers in order, so each new request
// waits for everything before it. The queue therefore gives the sender no more than a
// quarter of a second of work. Further requests wait in lines, one line for each caller, and the lines take
// turns. A caller with little under way passes the lines.
//
// The queue refuses a request that would wait too long. With a bound on memory alone, requests
// time out one after the other, and all work is for callers that have gone.
type queue struct {
	most  time.Duration // the longest wait that is expected of a request
	limit int           // most increments under way
	bus   time.Duration // how long the sender takes for a single increment

	mu    sync.Mutex
	under int        // increments under way, without pass
	pass  fair.Usage // increments under way of requests that passed the lines
	speed speed
	lines fair.Lines // by their increments
}

// A ticket is a request that is under way: between enter and leave.
type ticket struct {
	caller string
	cost   int
	passed bool
}

const (
	// always increments may be under way, and as many may wait: enough to learn the speed from, also if
	// the sender's work of late was refused or abandoned, so that it looks slow.
	always = 5_000
	// Until the speed is known, first increments may be under way, and until it is settled,
	// unknown may wait. Guesses: a fifth of a second of a fast machine, and many.
	first, unknown = 250_000, 1_000_000
	// The sender has work for most/ahead. With half as much ahead, a small caller waits half as
	// long beside bulk senders, who count no less.
	ahead = 10
	// costly bytes of a body cost as much as an increment.
	costly = 64
)

// cost is the number of increments, or more if their names are long.
func cost(increments, bytes int) int { return max(increments, bytes/costly, 1) }

// full returns why a request would be refused now; nil if it would not.
func (q *queue) full(caller string, cost int, now time.Time) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.tickLocked(now)
	if room := q.roomLocked(); q.fitsLocked(cost, room) || q.pass.Of(caller)+cost <= q.littleLocked(room) {
		return nil
	}
	return q.tooLongLocked(caller)
}

// enter waits for the request's turn. Call leave after nil. An error matches ErrOverloaded, or
// ErrUnavailable if ctx ended: the request must not go to the sender.
func (q *queue) enter(ctx context.Context, caller string, cost int, now time.Time) (ticket, error) {
	t := ticket{caller: caller, cost: cost}
	q.mu.Lock()
	q.tickLocked(now)
	room := q.roomLocked()
	if q.fitsLocked(cost, room) {
		q.under += cost
		q.mu.Unlock()
		return t, nil
	}
	if t.passed = q.pass.Take(caller, cost, q.littleLocked(room)); t.passed {
		q.mu.Unlock()
		return t, nil
	}
	if err := q.tooLongLocked(caller); err != nil {
		q.mu.Unlock()
		return t, err
	}
	w := q.lines.Join(caller, now, cost, q.turnLocked())
	q.mu.Unlock()
	return t, q.wait(ctx, w)
}

// leave ends a request that entered. taken: the bus has its increments.
func (q *queue) leave(t ticket, taken bool, now time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if taken && q.plentyLocked() {
		q.speed.taken += float64(t.cost)
	}
	q.tickLocked(now)
	if t.passed {
		q.pass.Give(t.caller, t.cost)
	} else {
		q.under -= t.cost
	}
	q.grantLocked()
}

// plentyLocked reports whether the sender has enough work to show its speed.
func (q *queue) plentyLocked() bool {
	return q.under+q.pass.Used() >= max(min(always, q.limit)/2, 1)
}

// tickLocked lets time pass.
func (q *queue) tickLocked(now time.Time) { q.speed.pass(now, q.plentyLocked()) }

// fitsLocked reports whether a request may enter at once: there is room, and no request waits.
func (q *queue) fitsLocked(cost, room int) bool {
	return q.lines.Empty() && (q.under+cost <= room || q.under == 0)
}

// littleLocked is how many increments of one caller may pass the lines. A quarter of the room
// is added for them. A caller may have an eighth of the part that is still free: however many
// callers use it, a part stays free for one with fewer increments.
func (q *queue) littleLocked(room int) int { return (room/4 - q.pass.Used()) / 8 }

// roomLocked is how many increments may be under way, without pass: as many as the sender
// takes in a part of most. The sender takes at least bus for any request, and that time is
// added: with less under way than bus needs, a slow bus would look slower each time.
func (q *queue) roomLocked() int {
	room, least := first, always
	if q.bus > 0 {
		least = first / 5
	}
	if rate, known := q.speed.rate(); known {
		room = max(int(rate*(q.bus+q.most/ahead).Seconds()), least)
	}
	return min(room, q.limit)
}

// tooLongLocked refuses a request that would wait too long for its turn. It would wait for all
// waiting requests, or for fewer if its own line is shorter than the others.
func (q *queue) tooLongLocked(caller string) error {
	own, lines := q.turnLocked()+q.lines.Of(caller), q.lines.Callers()
	if q.lines.Of(caller) == 0 {
		lines++
	}
	most := unknown
	if rate, known := q.speed.rate(); known && q.speed.settled {
		most = max(int(rate*(q.most-q.most/ahead).Seconds()), always)
	}
	if min(q.lines.Held(), own*lines) >= most {
		return q.refusal()
	}
	return nil
}

func (q *queue) refusal() error {
	return fmt.Errorf("%w: increments would wait for longer than %s", countmill.ErrOverloaded, q.most)
}

// wait waits for the request's turn, for longer than was estimated if need be.
func (q *queue) wait(ctx context.Context, w *fair.Waiter) error {
	limit := time.NewTimer(2 * q.most)
	defer limit.Stop()
	err := q.refusal()
	select {
	case <-w.Granted:
		return nil
	case <-limit.C:
	case <-ctx.Done():
		err = fmt.Errorf("%w: %w", countmill.ErrUnavailable, context.Cause(ctx))
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.lines.Leave(w) { // admitted at the same moment
		return nil
	}
	return err
}

// turnLocked is how many increments a line may send in a turn.
func (q *queue) turnLocked() int { return max(q.roomLocked()/16, 1000) }

// grantLocked admits waiting requests while there is room. Lines take turns.
func (q *queue) grantLocked() {
	room, turn := q.roomLocked(), q.turnLocked()
	for !q.lines.Empty() && q.under < room {
		w := q.lines.Next(turn)
		q.under += w.Cost
		close(w.Granted)
	}
}
