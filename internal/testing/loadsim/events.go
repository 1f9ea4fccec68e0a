package loadsim

import "time"

// An event is something that happens at a moment of virtual time.
type event struct {
	at  time.Duration
	seq uint64 // events of one moment happen in the order in which they were planned
	do  func(at time.Duration)
}

// events are a binary heap.
type events struct {
	heap []event
	seq  uint64
}

func (e *events) before(i, j int) bool {
	a, b := &e.heap[i], &e.heap[j]
	return a.at < b.at || a.at == b.at && a.seq < b.seq
}

func (e *events) plan(at time.Duration, do func(at time.Duration)) {
	e.seq++
	e.heap = append(e.heap, event{at, e.seq, do})
	for i := len(e.heap) - 1; i > 0; {
		parent := (i - 1) / 2
		if !e.before(i, parent) {
			return
		}
		e.heap[i], e.heap[parent] = e.heap[parent], e.heap[i]
		i = parent
	}
}

// next takes the first event off.
func (e *events) next() (event, bool) {
	if len(e.heap) == 0 {
		return event{}, false
	}
	first, last := e.heap[0], len(e.heap)-1
	e.heap[0] = e.heap[last]
	e.heap[last] = event{}
	e.heap = e.heap[:last]
	for i := 0; ; {
		least := i
		for _, child := range []int{2*i + 1, 2*i + 2} {
			if child < last && e.before(child, least) {
				least = child
			}
		}
		if least == i {
			return first, true
		}
		e.heap[i], e.heap[least] = e.heap[least], e.heap[i]
		i = least
	}
}
