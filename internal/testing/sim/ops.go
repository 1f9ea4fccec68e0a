package sim

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/admin"
	"github.com/countmill/countmill/reader"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/wire"
)

// An op is what a client asks of a publisher or a reader, until it is answered.
type op struct {
	n    int
	kind string
	p    *proc // that was asked last
	incs []countmill.Increment
	sums []*sum
	key  string
	// repeats is how often the client asks again where it was not told the outcome.
	repeats int
	jumped  time.Duration // World.jumped at the first attempt
	unknown bool          // some attempt had an unknown outcome
	limit   time.Duration
	err     error
	gaveUp  bool // its time was up before it was answered
	crowd   int  // how many of a crowd were added before

	names     []string
	final     bool // after all has come to rest
	staleness time.Duration
	from      time.Time     // when it was asked, by clocks that are right
	doubt     time.Duration // how far its process may have been wrong about the store's clock
	totals    []reader.Total
	pipeline  reader.Pipeline
	records   []store.Worker // that its process had read
	accuracy  accuracy       // of its process then
	id        string         // of a reset
	done      store.ResetResult
	letter    store.DeadLetter // that a person looks after
	became    admin.DeadLetterOutcome
}

// ask starts an attempt.
func (w *World) ask(o *op, p *proc, call func(ctx context.Context) error) {
	o.p = p
	w.asked[o] = struct{}{}
	w.trace("ask "+o.kind, p, o.key, uint64(o.n))
	w.say(p, "op %d asked: %s", o.n, w.words(o.kind, o.text))
	w.running.Add(1)
	go func() {
		defer w.running.Done()
		w.park(&step{p: w.clients, op: "ask", key: uint64(o.n), asks: func() string { return fmt.Sprint("op ", o.n) }})
		ctx, cancel := context.WithTimeout(context.WithValue(background, opKey{}, o.n), o.limit)
		if o.stale(w) {
			o.err = countmill.ErrUnavailable // it never called
		} else {
			o.err = call(ctx)
		}
		o.gaveUp = ctx.Err() != nil
		cancel()
		w.mu.Lock()
		defer w.mu.Unlock()
		w.finished = append(w.finished, o)
	}()
}

func (w *World) newOp(kind string) *op {
	w.ops++
	limit := []time.Duration{200 * time.Millisecond, 2 * time.Second, 10 * time.Second, time.Minute}[w.rng.IntN(4)]
	limit += time.Duration(w.ops) * 17 // as oddly does
	return &op{n: w.ops, kind: kind, limit: limit, jumped: w.jumped, repeats: w.rng.IntN(6)}
}

// send lets a client send increments through p.
func (w *World) send(o *op, p *proc) {
	w.noteRequest(o)
	w.ask(o, p, func(ctx context.Context) error {
		if o.key != "" {
			return p.pub.PublishKeyed(ctx, "", o.key, o.incs...)
		}
		return p.pub.Publish(ctx, o.incs...)
	})
}

// noteRequest notes the ids of the rests of a request with a key. A marker that says "whole" is
// for all of them.
func (w *World) noteRequest(o *op) {
	if o.key == "" {
		return
	}
	parts, err := wire.CutRequest("", o.key, o.incs)
	if err != nil {
		return // it is refused
	}
	var rests []wire.PartID
	for _, p := range parts {
		if p.Kind == wire.Rest {
			rests = append(rests, p.ID)
		}
	}
	w.rests[wire.Use{ID: parts[0].ID, Fingerprint: parts[0].Fingerprint()}] = rests
}

// finish takes an answer in.
func (w *World) finish(o *op) {
	delete(w.asked, o)
	outcome := outcomeName(o.err)
	if o.p.dead {
		outcome = "nobody" // what it is told in its last moments is anything
	}
	w.trace("answered "+o.kind, o.p, outcome, uint64(o.n))
	w.say(o.p, "op %d answered: %s", o.n, w.words(outcome, o.answer))
	if o.gaveUp {
		w.hit(CallerGivesUp)
	}
	switch o.kind {
	case "read", "list":
		w.finishRead(o)
	case "grow", "reset", "delete":
		w.finishChange(o)
	case replayOp, asNewOp, discardOp:
		w.finishLetter(o)
	case "flush", "close":
		w.finishFlush(o)
	case "pipeline":
		w.checkPipeline(o)
	case "ready":
		w.finishProbe(o)
	default:
		w.finishSend(o)
	}
}

// text is what the client asks for.
func (o *op) text() string {
	var b strings.Builder
	for i, inc := range o.incs {
		b.WriteString(sumText(inc.Counter, inc.Delta))
		if inc.ID != "" {
			b.WriteString(" id " + inc.ID)
		}
		if i < len(o.incs)-1 {
			b.WriteString(", ")
		}
	}
	if o.key != "" {
		b.WriteString(" key " + o.key)
	}
	if o.id != "" {
		b.WriteString("id " + o.id + " ")
	}
	if len(o.names) > 0 {
		fmt.Fprintf(&b, "%s, at most %s old", strings.Join(o.names, ", "), o.staleness)
	}
	fmt.Fprintf(&b, " (within %s)", o.limit.Round(time.Millisecond))
	return b.String()
}

// answer is what else it was told.
func (o *op) answer() string {
	if o.err != nil {
		return fmt.Sprintf("(%v)", o.err)
	}
	totals := make([]string, len(o.totals))
	for i, t := range o.totals {
		totals[i] = fmt.Sprintf("%s as of %s from the %s", sumText(t.Counter, t.Total), t.AsOf.Format(clockFormat), t.Source)
	}
	return strings.Join(totals, ", ")
}

// stale reports whether a client may not ask any more: beyond the window it would have to
// say when the event happened.
func (o *op) stale(w *World) bool {
	return len(o.incs) > 0 && o.incs[0].Time.IsZero() && w.jumped != o.jumped
}

func outcomeName(err error) string {
	for _, known := range []error{countmill.ErrOutcomeUnknown, countmill.ErrUnavailable, countmill.ErrOverloaded,
		countmill.ErrConflict, countmill.ErrIDsReused, countmill.ErrClosed, countmill.ErrInvalid, countmill.ErrOverflow} {
		if errors.Is(err, known) {
			return known.Error()
		}
	}
	if err != nil {
		return "error"
	}
	return "ok"
}

func (w *World) finishSend(o *op) {
	switch {
	case o.err == nil && !o.p.dead:
		for _, s := range o.sums {
			s.durable()
		}
		return
	case o.p.dead || errors.Is(o.err, countmill.ErrOutcomeUnknown):
		o.unknown = true
		for _, s := range o.sums {
			s.maybe()
		}
	case o.err == nil:
	case errors.Is(o.err, countmill.ErrIDsReused):
		w.finishConflicts(o)
		return
	case !errors.Is(o.err, countmill.ErrUnavailable) && !errors.Is(o.err, countmill.ErrOverloaded) &&
		!errors.Is(o.err, countmill.ErrClosed):
		return // refused for good: conflict, beyond the window
	}
	// An increment without an id may be sent again where it was certainly not counted. One
	// with an id may always, with its time within the window, without it if no time passed.
	if o.unknown && o.incs[0].ID == "" && o.key == "" {
		return
	}
	if o.repeats == 0 {
		return
	}
	o.repeats--
	w.again = append(w.again, o)
}

// repeat sends an op again, through any publisher.
func (w *World) repeat() bool {
	lives := w.publishers()
	if len(w.again) == 0 || len(lives) == 0 {
		return false
	}
	i := w.rng.IntN(len(w.again))
	o := w.again[i]
	w.again = append(w.again[:i:i], w.again[i+1:]...)
	if o.stale(w) {
		return true
	}
	p := pick(w, lives)
	if p != o.p {
		w.hit(OtherPublisher)
	}
	w.send(o, p)
	return true
}
