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

// A Call is a call that begins.
type Call struct {
	By      engine.Engine
	Ctx     context.Context
	Op      Op
	Kind    engine.KindID   // of Scan, Due and Expire
	Keys    []engine.Key    // of Get, TxGet and Check
	Changes []engine.Change // of Commit and Transact
	// Blank makes all rows of a Get absent. The function of Around sets it.
	Blank bool
}

// Around sets a function that decides the answer of each call from now on; nil for none. It makes the call with do: once, never,
// twice, or after it has returned, so that changes take effect later. Its result is the answer; nil needs a call of do that
// succeeded. It runs without any lock, may block, and may call the database.
func (d *Database) Around(f func(c *Call, do func() error) error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.around = f
}

// An Answer is the result of a call. The zero value lets the call go on.
type Answer struct {
	// Err ends the call.
	Err error
	// Applied makes a call with changes take effect all the same, if nothing else refuses it: its caller gets Err,
	// which should then be an error after which the outcome is open.
	Applied bool
}

// OnCall is Around with a function that names the answer before the call. It may block until Ctx ends, so that the call is late.
func (d *Database) OnCall(f func(*Call) Answer) {
	d.Around(func(c *Call, do func() error) error {
		answer := f(c)
		if answer.Err != nil && !answer.Applied {
			return answer.Err
		}
		if err := do(); err != nil {
			return err
		}
		return answer.Err
	})
}

// call asks Around's function.
func (p *process) call(c *Call, do func() error) error {
	p.d.mu.Lock()
	f, err := p.d.around, p.openLocked()
	p.d.mu.Unlock()
	switch c.By = p; {
	case err != nil:
		return err
	case f == nil:
		return do()
	}
	return f(c, do)
}
