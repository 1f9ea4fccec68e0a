package sim

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/admin"
	"github.com/countmill/countmill/publisher"
	"github.com/countmill/countmill/reader"
	"github.com/countmill/countmill/store"
)

// Callers ask processes for something, each in a goroutine of its own, and get an answer.
type callers struct {
	*World
	self     *proc // where they wait for their turns
	n        int
	asked    map[*op]struct{}
	finished []*op // guarded by mu
}

func newCallers(w *World) *callers {
	return &callers{World: w, self: &proc{k: w.kernel, name: "clients"}, asked: make(map[*op]struct{})}
}

// An op is a client's request to a publisher or a reader, until its answer.
type op struct {
	n      int
	kind   string
	finish func(*op) // takes the answer in
	p      *proc     // that was asked last
	incs   []countmill.Increment
	sums   []*sum
	key    string
	past   time.Time // the minute of all in series; zero for none
	// repeats is how often the client asks again if it did not learn the outcome.
	repeats int
	jumped  time.Duration // kernel.jumped at the first attempt
	unknown bool          // some attempt had an unknown outcome
	limit   time.Duration
	err     error
	gaveUp  bool // its time was up before it was answered
	sent    publisher.Sent
	wrote   time.Time // when it was made, by clocks that are right
	crowd   int       // how many of a crowd were added before

	names     []string
	final     bool // after all has come to rest
	staleness time.Duration
	minAsOf   time.Time
	written   *written // that it reads back; nil for most
	dead      []reader.DeadLetterRef
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

func (cl *callers) newOp(kind string, finish func(*op)) *op {
	cl.n++
	limit := []time.Duration{200 * time.Millisecond, 2 * time.Second, 10 * time.Second, time.Minute}[cl.rng.IntN(4)]
	limit += time.Duration(cl.n) * 17 // as oddly does
	return &op{n: cl.n, kind: kind, finish: finish, limit: limit, jumped: cl.jumped, repeats: cl.rng.IntN(6), wrote: cl.wall()}
}

// ask starts an attempt.
func (cl *callers) ask(o *op, p *proc, call func(ctx context.Context) error) {
	o.p = p
	cl.asked[o] = struct{}{}
	cl.say(p, "op %d asked: %s", o.n, cl.words(o.kind, o.text))
	cl.running.Add(1)
	go func() {
		defer cl.running.Done()
		deepen(0)
		cl.park(&step{p: cl.self, op: "ask", key: uint64(o.n), asks: func() string { return fmt.Sprint("op ", o.n) }})
		ctx, cancel := context.WithTimeout(context.WithValue(background, opKey{}, o.n), o.limit)
		if o.stale(cl.kernel) {
			o.err = countmill.ErrUnavailable // it never called
		} else {
			o.err = call(ctx)
		}
		o.gaveUp = ctx.Err() != nil
		cancel()
		cl.mu.Lock()
		defer cl.mu.Unlock()
		cl.finished = append(cl.finished, o)
	}()
}

// answered returns the ops that got their answers since the last step, in the order of their
// requests.
func (cl *callers) answered() []*op {
	cl.mu.Lock()
	finished := cl.finished
	cl.finished = nil
	cl.mu.Unlock()
	slices.SortFunc(finished, func(a, b *op) int { return cmp.Compare(a.n, b.n) })
	return finished
}

// finish takes an answer in.
func (cl *callers) finish(o *op) {
	delete(cl.asked, o)
	if o.p.dead { // it may get any answer in its last moments
		cl.say(o.p, "nobody gets the answer to op %d", o.n)
	} else {
		cl.say(o.p, "op %d answered: %s", o.n, cl.words("", func() string { return answerText(o.err, o.answer) }))
	}
	if o.gaveUp {
		cl.hit(CallerGivesUp)
	}
	if o.err != nil && o.err.Error() == "" {
		cl.violate("the error of op %d, a %s, has no text", o.n, o.kind)
	}
	o.finish(o)
}

// text describes the request.
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

// answer describes the rest of the answer.
func (o *op) answer() string {
	totals := make([]string, len(o.totals))
	for i, t := range o.totals {
		totals[i] = fmt.Sprintf("%s as of %s from the %s", sumText(t.Counter, t.Total), t.AsOf.Format(clockFormat), t.Source)
	}
	return strings.Join(totals, ", ")
}

// stale reports whether a client may not ask any more: beyond the window it would have to
// say when the event happened.
func (o *op) stale(k *kernel) bool {
	return len(o.incs) > 0 && o.incs[0].Time.IsZero() && k.jumped != o.jumped
}
