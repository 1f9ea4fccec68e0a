package memory

import (
	"context"

	"github.com/countmill/countmill/store/engine"
)

// An Op names a call of an engine, a view or a transaction.
type Op int

// The ops. Get is a read of a view, TxGet of a transaction, and Scan the first row of a scan. Transact is called at the
// end of one: its function has run, and it has changes.
const (
	Commit Op = iota
	Transact
	TxGet
	Get
	Scan
	Due
	Expire
	Check
)

// A Call is a call that begins. Its function runs without any lock: it may block until Ctx ends, so that the call is late, and
// may call the database.
type Call struct {
	Ctx     context.Context
	Op      Op
	Kind    engine.KindID   // of Scan, Due and Expire
	Keys    []engine.Key    // of Get, TxGet and Check
	Changes []engine.Change // of Commit, Transact and Expire
}

// An Answer is the result of a call. The zero value lets the call go on.
type Answer struct {
	// Err ends the call.
	Err error
	// Applied makes a call with changes take effect all the same, if nothing else refuses it: its caller gets Err,
	// which should then be an error after which the outcome is open.
	Applied bool
	// Defer says which keys a Get does not look at. nil for none.
	Defer func(engine.Key) bool
}

// OnCall sets a function that decides the answer of each call from now on; nil for none.
func (d *Database) OnCall(f func(*Call) Answer) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.call = f
}

// begin asks OnCall's function.
func (p *process) begin(c *Call) Answer {
	p.d.mu.Lock()
	f, err := p.d.call, p.openLocked()
	p.d.mu.Unlock()
	switch {
	case err != nil:
		return Answer{Err: err}
	case f == nil:
		return Answer{}
	}
	return f(c)
}
