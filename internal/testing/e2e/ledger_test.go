package e2e

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"
)

// A ledger knows every increment that was sent, its outcome, and so the totals that are right. It
// shares no code with countmill.
//
// Most increments go to a few hot counters, for which it knows only the sums. A quarter are places of
// counters that have a history; when these are full, new ones begin.
type ledger struct {
	prefix  string
	counted bool          // a 202 means that the next total contains the increment, not only that it is safe
	apart   time.Duration // how far as_of must be apart to order totals

	mu       sync.Mutex
	open     []*history // with places left
	recent   []*history // histories that are not checked yet, including the open ones
	checked  []verdict
	hot      []sum
	wrong    []error
	reads    int64         // totals that were shown
	lastCall time.Duration // of the acknowledged requests, the latest
}

// A verdict is the result of a checked history: its total.
type verdict struct {
	counter   string
	must, may uint64 // places
}

// A sum is a hot counter: the acknowledged sum, the sent sum, and the largest total that was read.
type sum struct{ acked, sent, read int64 }

const (
	openHistories = 20
	hotCounters   = 10
	ofHistories   = 5 // increments of a request that go to histories
)

func newLedger(prefix string, counted bool) *ledger {
	l := &ledger{prefix: prefix, counted: counted, hot: make([]sum, hotCounters)}
	for range openHistories {
		l.begin()
	}
	return l
}

func (l *ledger) begin() {
	h := &history{counter: fmt.Sprintf("%s:h-%d", l.prefix, len(l.checked)+len(l.recent))}
	l.open, l.recent = append(l.open, h), append(l.recent, h)
}

func (l *ledger) hotName(i int) string { return fmt.Sprintf("%s:hot-%d", l.prefix, i) }

// A request is increments that were drawn from the ledger.
type request struct {
	key     string // empty if increments have ids, or if a repeat is not harmless
	body    string
	repeats bool // a repeat is harmless

	call   time.Duration
	places []place
	hot    [hotCounters]int64
}

type place struct {
	of *history
	i  int
}

// draw makes a random request: a third has a key, a third has ids, a third neither.
func (l *ledger) draw(r *rand.Rand, name string) *request {
	l.mu.Lock()
	defer l.mu.Unlock()
	kind := r.IntN(3)
	q := &request{repeats: kind < 2, call: now()}
	if kind == 0 {
		q.key = l.prefix + "-" + name
	}
	var body strings.Builder
	line := func(counter string, delta int64) {
		fmt.Fprintf(&body, `{"counter":%q,"delta":%d`, counter, delta)
		if kind == 1 {
			fmt.Fprintf(&body, `,"id":"%s-%s-%d"`, l.prefix, name, body.Len())
		}
		body.WriteString("}\n")
	}
	for _, n := range r.Perm(len(l.open))[:ofHistories] {
		h := l.open[n]
		q.places = append(q.places, place{h, len(h.adds)})
		line(h.counter, 1<<(2*len(h.adds)))
		h.adds = append(h.adds, add{call: q.call, acked: never})
	}
	for range perRequest - ofHistories {
		n, delta := min(r.IntN(hotCounters), r.IntN(hotCounters)), int64(1+r.IntN(9))
		q.hot[n] += delta
		l.hot[n].sent += delta
		line(l.hotName(n), delta)
	}
	q.body = body.String()
	l.open = slices.DeleteFunc(l.open, func(h *history) bool { return len(h.adds) == places })
	for len(l.open) < openHistories {
		l.begin()
	}
	return q
}

// settle records that the request is not sent any more, and whether it was acknowledged.
func (l *ledger) settle(q *request, acked bool) {
	at := now()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range q.places {
		a := &p.of.adds[p.i]
		if a.done = true; acked {
			a.acked = at
		}
	}
	if !acked {
		return
	}
	l.lastCall = max(l.lastCall, q.call)
	for i, n := range q.hot {
		l.hot[i].acked += n
	}
}

// A question is a call for totals, with the range of hot counters when it was sent.
type question struct {
	counters  []string
	staleness time.Duration
	call      time.Duration

	histories []*history // of the first counters
	least     []int64    // of the hot ones, which follow
}

// ask makes a call for totals of hot counters and of histories: some that have just changed, and one
// that may have changed a while ago.
func (l *ledger) ask(r *rand.Rand, staleness time.Duration) *question {
	l.mu.Lock()
	defer l.mu.Unlock()
	var of []*history
	for _, n := range r.Perm(len(l.open))[:8] {
		of = append(of, l.open[n])
	}
	if h := l.recent[r.IntN(len(l.recent))]; !slices.Contains(of, h) {
		of = append(of, h)
	}
	return l.question(of, staleness)
}

// askFor makes a call for fresh totals of some histories.
func (l *ledger) askFor(of []*history) *question {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.question(of, 0)
}

func (l *ledger) question(of []*history, staleness time.Duration) *question {
	q := &question{staleness: staleness, histories: of}
	for _, h := range of {
		q.counters = append(q.counters, h.counter)
	}
	for i, s := range l.hot {
		q.counters = append(q.counters, l.hotName(i))
		least := s.read
		if l.counted {
			least = max(least, s.acked)
		}
		q.least = append(q.least, least)
	}
	q.call = now()
	return q
}

// answered compares the totals with the ledger at once, as far as possible.
func (l *ledger) answered(q *question, a answer) {
	ret := now()
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(a.Totals) != len(q.counters) {
		l.wrong = append(l.wrong, fmt.Errorf("%d totals for %d counters", len(a.Totals), len(q.counters)))
		return
	}
	l.reads += int64(len(a.Totals))
	for i, h := range q.histories {
		total := a.Totals[i]
		err := h.show(read{call: q.call, ret: ret, staleness: q.staleness, asOf: total.AsOf, total: total.Total})
		if err != nil {
			l.wrong = append(l.wrong, err)
		}
	}
	for i, total := range a.Totals[len(q.histories):] {
		s := &l.hot[i]
		switch {
		case total.Total > s.sent:
			l.wrong = append(l.wrong, fmt.Errorf("%s: total is %d, %d were sent", total.Counter, total.Total, s.sent))
		case q.staleness > 0: // an older total may lack increments, and their number is not known
		case total.Total < q.least[i]:
			l.wrong = append(l.wrong, fmt.Errorf("%s: total is %d, it was %d before", total.Counter, total.Total, q.least[i]))
		default:
			s.read = max(s.read, total.Total)
		}
	}
}

// lacking lists histories with increments that were acknowledged before a time and that no read has
// shown. It also returns their number.
func (l *ledger) lacking(before time.Duration) (of []*history, n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, h := range l.recent {
		if missing := h.missing(before); missing > 0 {
			of, n = append(of, h), n+missing
		}
	}
	return of, n
}

// check judges the histories that are full and whose acknowledged increments were all seen, and keeps
// only their verdicts. With all it judges every history.
func (l *ledger) check(all bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.recent = slices.DeleteFunc(l.recent, func(h *history) bool {
		if !all && (!h.full() || h.missing(never) > 0) {
			return false
		}
		if err := h.check(l.counted, l.apart); err != nil {
			l.wrong = append(l.wrong, err)
		}
		v := verdict{counter: h.counter}
		for i, a := range h.adds {
			if a.acked != never {
				v.must |= 1 << i
			} else {
				v.may |= 1 << i
			}
		}
		l.checked = append(l.checked, v)
		return true
	})
}

// shown returns how many totals were read.
func (l *ledger) shown() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.reads
}

// acknowledged returns when the latest of the acknowledged requests was sent.
func (l *ledger) acknowledged() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lastCall
}

// problems returns the errors so far.
func (l *ledger) problems() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.wrong) > 5 {
		return errors.Join(append(slices.Clone(l.wrong[:5]), fmt.Errorf("and %d more", len(l.wrong)-5))...)
	}
	return errors.Join(l.wrong...)
}
