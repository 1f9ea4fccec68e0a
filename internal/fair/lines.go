package fair

import (
	"container/list"
	"time"
)

// Lines have the waiters, a line for each caller. The lines take turns. Its methods need its owner's lock. The zero value
// is empty.
type Lines struct {
	lines map[string]*line // by caller
	turns list.List        // of *line, the next one first
	held  int              // the cost of all that wait
}

// A line has the waiters of one caller.
type line struct {
	caller  string
	waiting list.List // of *Waiter
	held    int       // cost
	credit  int       // left in this turn
	place   *list.Element
}

// A Waiter waits in a line.
type Waiter struct {
	Cost    int
	Granted chan struct{} // closed by the owner after Next

	since time.Time
	line  *line
	place *list.Element // nil once it was taken out
}

// Empty reports whether nobody waits.
func (ls *Lines) Empty() bool { return ls.turns.Len() == 0 }

// Held is the cost of all that wait.
func (ls *Lines) Held() int { return ls.held }

// Of is the cost of all that wait of a caller.
func (ls *Lines) Of(caller string) int {
	if l := ls.lines[caller]; l != nil {
		return l.held
	}
	return 0
}

// Callers is the number of lines.
func (ls *Lines) Callers() int { return len(ls.lines) }

// Join puts a waiter into its caller's line, behind waiters that are as old or older. A line begins with the credit turn.
func (ls *Lines) Join(caller string, since time.Time, cost, turn int) *Waiter {
	l := ls.lines[caller]
	if l == nil {
		l = &line{caller: caller, credit: turn}
		if ls.lines == nil {
			ls.lines = make(map[string]*line)
		}
		ls.lines[caller], l.place = l, ls.turns.PushBack(l)
	}
	w := &Waiter{Cost: cost, since: since, line: l, Granted: make(chan struct{})}
	before := l.waiting.Back()
	for before != nil && before.Value.(*Waiter).since.After(since) {
		before = before.Prev()
	}
	if before == nil {
		w.place = l.waiting.PushFront(w)
	} else {
		w.place = l.waiting.InsertAfter(w, before)
	}
	l.held += cost
	ls.held += cost
	return w
}

// Leave takes a waiter out of its line. It returns false if Next did so before.
func (ls *Lines) Leave(w *Waiter) bool {
	if w.place == nil {
		return false
	}
	l := w.line
	l.waiting.Remove(w.place)
	w.place = nil
	l.held -= w.Cost
	ls.held -= w.Cost
	if l.waiting.Len() == 0 {
		ls.turns.Remove(l.place)
		delete(ls.lines, l.caller)
	}
	return true
}

// Next takes out the waiter whose turn it is; somebody must wait. In a turn a line has turn more credit. The last one of
// a turn may exceed that, and the line then misses turns. So one with a large cost waits no longer than a small one, and a
// caller with many of them gets no more than others.
func (ls *Lines) Next(turn int) *Waiter {
	for {
		l := ls.turns.Front().Value.(*line)
		if l.credit <= 0 {
			l.credit += turn
			ls.turns.MoveToBack(l.place)
			continue
		}
		w := l.waiting.Front().Value.(*Waiter)
		l.credit -= w.Cost
		ls.Leave(w)
		return w
	}
}
