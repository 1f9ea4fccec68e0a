package e2e

import (
	"fmt"
	"math/bits"
)

// A drift is the difference between all totals and the ledger, in increments; for hot counters, in the
// sum of deltas.
type drift struct {
	counters, acked, unknown int // compared counters, and the increments that were sent to them
	unknownCounted           int // those of unknown that are in a total
	lost, doubled, foreign   int64
	example                  string
}

func (d drift) none() bool { return d.lost == 0 && d.doubled == 0 && d.foreign == 0 }

func (d *drift) differs(counter string, total int64, why string) {
	if d.example == "" {
		d.example = fmt.Sprintf("%s: total is %d: %s", counter, total, why)
	}
}

// place compares the total of a history with the ledger.
func (d *drift) place(v verdict, total int64) {
	d.counters, d.acked, d.unknown = d.counters+1, d.acked+bits.OnesCount64(v.must), d.unknown+bits.OnesCount64(v.may)
	if total < 0 {
		d.foreign++
		d.differs(v.counter, total, "it is negative")
		return
	}
	for i := range 32 {
		n := total >> (2 * i) & 3
		must, may := v.must>>i&1 != 0, v.may>>i&1 != 0
		switch {
		case must && n == 0:
			d.lost++
			d.differs(v.counter, total, fmt.Sprintf("increment %d is lost", i))
		case !must && !may && n > 0:
			d.foreign++
			d.differs(v.counter, total, fmt.Sprintf("nobody sent increment %d", i))
		case n > 1:
			d.doubled += n - 1
			d.differs(v.counter, total, fmt.Sprintf("increment %d is there %d times", i, n))
		case may && n == 1:
			d.unknownCounted++
		}
	}
}

// sum compares the total of a hot counter with the ledger.
func (d *drift) sum(counter string, s sum, total int64) {
	d.counters++
	if total < s.acked {
		d.lost += s.acked - total
		d.differs(counter, total, fmt.Sprintf("%d were acknowledged", s.acked))
	}
	if total > s.sent {
		d.doubled += total - s.sent
		d.differs(counter, total, fmt.Sprintf("%d were sent", s.sent))
	}
}

// drift reads every total from the store, without a cache, and compares. No request may be running.
func (l *ledger) drift(ask func(counters []string) (answer, error)) (d drift, err error) {
	const most = 1000 // counters of one call
	for from := 0; from < len(l.checked); from += most {
		verdicts := l.checked[from:min(from+most, len(l.checked))]
		var counters []string
		for _, v := range verdicts {
			counters = append(counters, v.counter)
		}
		a, err := ask(counters)
		if err != nil {
			return d, err
		}
		for i, v := range verdicts {
			d.place(v, a.Totals[i].Total)
		}
	}
	var counters []string
	for i := range l.hot {
		counters = append(counters, l.hotName(i))
	}
	a, err := ask(counters)
	if err != nil {
		return d, err
	}
	for i, s := range l.hot {
		d.sum(counters[i], s, a.Totals[i].Total)
	}
	return d, nil
}
