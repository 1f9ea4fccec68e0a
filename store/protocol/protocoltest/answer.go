package protocoltest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/engine"
	"github.com/countmill/countmill/store/engine/memory"
	"github.com/countmill/countmill/store/protocol"
)

// An Answer is the result of a call, and whether the call was applied.
type Answer int

// The answers. An answer that does not fit a call counts as OK.
const (
	// OK applies the call. A fold still gets ErrMarkerExists if a marker exists.
	OK Answer = iota
	// MarkerExists refuses a fold with ErrMarkerExists, whether or not a marker exists.
	MarkerExists
	// Refused, Deployment and NotApplied apply nothing and return the error of that name.
	Refused
	Deployment
	NotApplied
	// NotCounted inserts a fold's markers and drops its adds, as the older Datastore emulator does, and
	// returns ErrNotCounted.
	NotCounted
	// UnknownApplied and UnknownNotApplied return an error like a deadline of the server: the caller
	// cannot know which of the two happened.
	UnknownApplied
	UnknownNotApplied
	// ContendedApplied and ContendedNotApplied return ErrContended: again the caller cannot know.
	ContendedApplied
	ContendedNotApplied
	// SlowApplied and SlowNotApplied return when the caller's context ends.
	SlowApplied
	SlowNotApplied
	// Blank makes a read find no rows, because a look-up is only a hint.
	Blank
)

// OnFold sets a hook that is called before each fold. n counts folds from 1. The hook must not keep c.
// A nil hook answers OK.
func (s *Store) OnFold(hook func(n int, c *store.Commit) Answer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.onFold = hook
}

// On sets a hook that is called before each call of the database. n counts the calls from 1. A nil hook answers OK. An op is check, or get,
// scan, write or tx and the name of a kind, as in "write letter": that of its last row. The call of a transaction is its read, and a lost answer
// is that of its end. Folds have OnFold.
func (s *Store) On(op string, hook func(n int) Answer) {
	if _, kind, has := strings.Cut(op, " "); has && !slices.ContainsFunc(protocol.Kinds, func(k engine.Kind) bool { return k.Name == kind }) {
		panic("no kind of " + op)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hooks[op] = hook
}

// Calls returns how often op was called, with any result.
func (s *Store) Calls(op string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls[op]
}

// FoldCalls returns how often Fold was called, with any result.
func (s *Store) FoldCalls() int { return s.Calls(fold) }

// Script answers calls 1, 2, 3 and so on with answers, and later ones with OK.
func Script(answers ...Answer) func(n int) Answer {
	return func(n int) Answer {
		if n > len(answers) {
			return OK
		}
		return answers[n-1]
	}
}

// FoldScript is Script for OnFold.
func FoldScript(answers ...Answer) func(n int, c *store.Commit) Answer {
	script := Script(answers...)
	return func(n int, _ *store.Commit) Answer { return script(n) }
}

var refusals = map[Answer]error{
	MarkerExists: engine.ErrExists, Refused: engine.ErrRefused, Deployment: engine.ErrDeployment, NotApplied: engine.ErrNotApplied, NotCounted: engine.ErrNotCounted,
	UnknownApplied: errLost, UnknownNotApplied: errLost, ContendedApplied: engine.ErrContended, ContendedNotApplied: engine.ErrContended,
}

var errLost = fmt.Errorf("the answer was lost: %w", context.DeadlineExceeded)

const fold = "fold"

// commitKey is the key of a fold's commit in a context.
type commitKey struct{}

// unseenKey is the key in the context of a test's own look.
type unseenKey struct{}

var unseen = context.WithValue(context.Background(), unseenKey{}, true)

var verbs = map[memory.Op]string{memory.Commit: "write ", memory.TxGet: "tx ", memory.Get: "get ", memory.Scan: "scan ", memory.Due: "due ", memory.Expire: "expire "}

// opOf returns the op of a call.
func opOf(c *memory.Call) string {
	kind := c.Kind
	switch {
	case c.Op == memory.Check:
		return "check"
	case c.Ctx.Value(commitKey{}) != nil:
		return fold
	case len(c.Changes) > 0:
		kind = c.Changes[len(c.Changes)-1].Key.Kind
	case len(c.Keys) > 0:
		kind = c.Keys[len(c.Keys)-1].Kind
	}
	return verbs[c.Op] + protocol.Kinds[kind].Name
}

// answerTo asks the hook of a call's op.
func (s *Store) answerTo(c *memory.Call) (answer Answer) {
	op := opOf(c)
	s.mu.Lock()
	s.calls[op]++
	n, hook, onFold := s.calls[op], s.hooks[op], s.onFold
	s.mu.Unlock()
	switch commit, _ := c.Ctx.Value(commitKey{}).(*store.Commit); {
	case op == fold && onFold != nil:
		answer = onFold(n, commit)
	case hook != nil:
		answer = hook(n)
	}
	return answer
}

// around makes a call as the hook of its op demands.
func (s *Store) around(c *memory.Call, do func() error) error {
	switch {
	case c.Ctx.Err() != nil:
		return do() // which refuses it
	case c.Ctx.Value(unseenKey{}) != nil:
		return do()
	case c.Op == memory.Transact:
		end, _ := s.ends.LoadAndDelete(c.Ctx)
		answer, _ := end.(Answer)
		return s.answer(c, answer, do)
	}
	answer := s.answerTo(c)
	if s.opts.Latency > 0 {
		select {
		case <-time.After(s.opts.Latency):
		case <-c.Ctx.Done():
			return c.Ctx.Err()
		}
	}
	switch answer {
	case UnknownApplied, SlowApplied, ContendedApplied:
		if c.Op == memory.TxGet {
			s.ends.Store(c.Ctx, answer)
			answer = OK
		}
	}
	return s.answer(c, answer, do)
}

func (s *Store) answer(c *memory.Call, answer Answer, do func() error) (err error) {
	switch c.Blank = answer == Blank; answer {
	case NotCounted:
		c.Changes = slices.DeleteFunc(c.Changes, func(x engine.Change) bool { return protocol.Kinds[x.Key.Kind].Name != "marker" })
		fallthrough
	case OK, Blank, UnknownApplied, SlowApplied, ContendedApplied:
		err = do()
		s.count(c, err)
	}
	switch answer {
	case OK, Blank:
		return err
	case SlowApplied, SlowNotApplied:
		<-c.Ctx.Done()
		return fmt.Errorf("no answer: %w", c.Ctx.Err())
	}
	return refusals[answer]
}
