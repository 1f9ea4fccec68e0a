package sim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/engine"
	"github.com/countmill/countmill/store/engine/memory"
	"github.com/countmill/countmill/store/protocol"
	"github.com/countmill/countmill/wire"
)

var (
	errFenced     = errors.New("sim: the process is dead")
	errDeployment = fmt.Errorf("sim: %w: permission denied", engine.ErrDeployment)
	errSwapped    = fmt.Errorf("sim: this is %w", engine.ErrOtherDatabase)
	errExpired    = fmt.Errorf("the transaction has expired: %w", errLost)
)

// kindNamed returns a kind of the store's rows.
func kindNamed(name string) engine.KindID {
	return engine.KindID(slices.IndexFunc(protocol.Kinds, func(k engine.Kind) bool { return k.Name == name }))
}

// fieldNamed returns a field of a kind.
func fieldNamed(kind engine.KindID, name string) engine.FieldID {
	fields := protocol.Kinds[kind].Fields
	return fields[slices.IndexFunc(fields, func(f engine.FieldSpec) bool { return f.Name == name })].ID
}

var (
	kindMeta, kindMarker, kindRecord, kindShard        = kindNamed("meta"), kindNamed("marker"), kindNamed("record"), kindNamed("shard")
	kindDay, kindLetterRef, kindChunk, kindLetter      = kindNamed("day"), kindNamed("letterref"), kindNamed("chunk"), kindNamed("letter")
	kindWorker, kindRange, kindRemainder, kindSequence = kindNamed("worker"), kindNamed("indexrange"), kindNamed("remainder"), kindNamed("sequence")

	fieldShards, fieldResetAt = fieldNamed(kindRecord, "shards"), fieldNamed(kindRecord, "resetat")
	fieldRemoved, fieldAt     = fieldNamed(kindMarker, "removed"), fieldNamed(kindMarker, "at")
	fieldFingerprint          = fieldNamed(kindMarker, "fingerprint")
	fieldFirst, fieldValues   = fieldNamed(kindMarker, "first"), fieldNamed(kindMarker, "values")
)

// around parks for each call of a process, and decides what becomes of it.
func (db *database) around(c *memory.Call, do func() error) (err error) {
	db.mu.Lock()
	p := db.engines[c.By]
	db.mu.Unlock()
	parks, watched := p != nil && c.Ctx.Value(aloneKey{}) == nil, changes(c) && db.parts != nil // or it is just being made
	if !parks && !watched {
		return do()
	}
	s := &step{p: p, ctx: c.Ctx, op: db.nameOf(c), key: keyOf(c)}
	if watched {
		do = db.watched(c, s, do)
	}
	if !parks {
		return do()
	}
	if s.commit = foldOf(c); db.verbose { // else nobody asks for words
		s.asks, s.gets = func() string { return callText(c) }, func() string { return answerText(err, nil) }
		if s.commit != nil {
			s.asks = func() string { return commitText(foldOf(c)) }
		}
	}
	s.run = func(end callEnd) { err = db.answer(c, s, end, do) }
	if !db.park(s) {
		return errFenced
	}
	return err
}

// changes reports whether a call changes rows.
func changes(c *memory.Call) bool {
	return c.Op == memory.Commit || c.Op == memory.Transact || c.Op == memory.Expire
}

// answer makes a call, or lets it fail. One with changes whose answer is lost may have taken effect, or take effect later.
func (db *database) answer(c *memory.Call, s *step, end callEnd, do func() error) (err error) {
	x, mayChange := db.faultsOf(c, s.p), changes(c)
	if commit := foldOf(c); commit != nil {
		defer func() {
			db.mu.Lock()
			s.p.unsure = s.p.unsure || errors.Is(err, errLost)
			db.mu.Unlock()
		}()
		if end == released {
			if err := db.failFold(commit, do); err != nil {
				return err
			}
		}
	}
	switch {
	case end != released && mayChange, db.away(StoreAway) && mayChange:
		db.mayApply(do)
		return errLost
	case end != released, db.away(StoreAway), db.strikes(x.lost):
		return errLost
	case mayChange && db.strikes(x.answerLost):
		_ = do()
		return errLost
	case mayChange && db.strikes(x.late):
		db.later(do)
		return errLost
	case c.Op == memory.Transact && db.strikes(Conflicts):
		return fmt.Errorf("sim: %w", engine.ErrConflict)
	case db.refused():
		return errDeployment
	case c.Op == memory.Check && db.swapped:
		return errSwapped
	}
	lookUp := s.op == "applied" || s.op == "shards"
	c.Blank = lookUp && db.strikes(LookupBlank)
	return do()
}

// faultsOf returns the faults of a call.
func (db *database) faultsOf(c *memory.Call, p *proc) callFaults {
	ofIndex := c.Ctx.Value(indexKey{}) != nil
	switch c.Op {
	case memory.Commit:
		if foldOf(c) != nil {
			return callFaults{FoldNotApplied, FoldApplied, FoldLate}
		}
	case memory.Check:
		return callFaults{lost: CheckFails}
	case memory.Due, memory.Expire:
		return callFaults{sweeps.lost, sweeps.answerLost, never}
	case memory.Get, memory.Scan:
		kind := c.Kind
		if len(c.Keys) > 0 {
			kind = c.Keys[0].Kind
		}
		switch {
		case ofIndex:
			return callFaults{lost: IndexFails}
		case kind == kindLetter || kind == kindChunk || kind == kindLetterRef:
			return callFaults{lost: DeadLettersFail}
		case kind == kindMarker || p.role == aggregating:
			return callFaults{lost: LookupFails}
		}
		return callFaults{lost: ReadFails}
	}
	if ofIndex {
		return indexChanges
	}
	switch kindOfCall(c) {
	case kindMeta:
		return settingsChanges
	case kindMarker: // of a decision
		return callFaults{FoldNotApplied, FoldApplied, FoldLate}
	case kindRecord:
		if c.Ctx.Value(resetKey{}) != nil {
			return resets
		}
		return growths
	case kindLetter, kindChunk, kindLetterRef:
		if removes(c) {
			return discards
		}
		return burials
	case kindWorker:
		return callFaults{HeartbeatLost, never, never}
	case kindSequence:
		return takes
	case kindRange, kindRemainder:
		return indexChanges
	}
	return sweeps
}

// kindOfCall is the kind that shows the purpose of a call.
func kindOfCall(c *memory.Call) engine.KindID {
	switch {
	case len(c.Changes) > 0 && c.Changes[0].Key.Kind == kindMeta:
		return kindMeta
	case len(c.Changes) > 0:
		return c.Changes[len(c.Changes)-1].Key.Kind
	case len(c.Keys) > 0:
		return c.Keys[len(c.Keys)-1].Kind
	}
	return c.Kind
}

func removes(c *memory.Call) bool {
	return slices.ContainsFunc(c.Changes, func(x engine.Change) bool { return x.Op == engine.Delete })
}

var opNames = [...]string{memory.Commit: "commit", memory.Transact: "transact", memory.TxGet: "transact: get", memory.Get: "get", memory.Scan: "scan", memory.Due: "due", memory.Expire: "expire", memory.Check: "check"}

// callNames are opNames and the names of kinds.
var callNames = func() (names [len(opNames)][]string) {
	for op := range names {
		for _, kind := range protocol.Kinds {
			names[op] = append(names[op], opNames[op]+" "+kind.Name)
		}
	}
	return names
}()

// nameOf names a call.
func (db *database) nameOf(c *memory.Call) string {
	switch name := c.Ctx.Value(nameKey{}).(type) {
	case string:
		return name
	case *lots:
		return name.next()
	}
	return callNames[c.Op][kindOfCall(c)]
}

// keyOf is a hash of the arguments of a call.
func keyOf(c *memory.Call) uint64 {
	var h xxhash.Digest
	h.Reset()
	key := func(k *engine.Key) {
		_, _ = h.WriteString(k.Name)
		_, _ = h.Write([]byte{byte(c.Op), byte(k.Kind), byte(k.Part), byte(k.Part >> 8)})
	}
	for i := range c.Keys {
		key(&c.Keys[i])
	}
	for i := range c.Changes {
		x := &c.Changes[i]
		key(&x.Key)
		for _, f := range x.Add {
			_, _ = h.Write([]byte{byte(f.ID), byte(f.Value.Lo), byte(f.Value.Lo >> 8)})
		}
	}
	return h.Sum64()
}

// callText describes the rows of a call.
func callText(c *memory.Call) string {
	text := opNames[c.Op]
	row := func(k *engine.Key, what any) {
		name := fmt.Sprintf("%q", k.Name)
		if protocol.Kinds[k.Kind].Binary && len(k.Name) >= len(wire.PartID{}) {
			name = short(wire.PartID([]byte(k.Name[:len(wire.PartID{})])))
		}
		text += fmt.Sprintf(" %s %s/%d%v", protocol.Kinds[k.Kind].Name, name, k.Part, what)
	}
	for i := range c.Keys {
		row(&c.Keys[i], "")
	}
	for i := range c.Changes {
		x := &c.Changes[i]
		row(&x.Key, []string{"", " inserted", " updated", " deleted"}[x.Op])
	}
	return text
}

// watched reports changes, and lets none take effect when its transaction has expired.
func (db *database) watched(c *memory.Call, s *step, do func() error) func() error {
	begun := db.wall()
	return func() error {
		commit := foldOf(c)
		switch {
		case s.p == nil || db.embedded || db.wall().Sub(begun) <= store.MaxTransaction:
		case c.Op == memory.Transact, commit != nil && (db.indexed != nil || db.pages != nil): // a store with older rules than its own takes it until then
			return errExpired
		}
		if commit != nil && db.poisoned(commit) {
			return fmt.Errorf("sim: %w: content", engine.ErrRefused)
		}
		db.changing(c, s)
		err := do()
		if err == nil {
			db.changed(c, s)
		}
		return err
	}
}

// changing comes before changes take effect.
func (db *database) changing(c *memory.Call, s *step) {
	var letters []string
	for i := range c.Changes {
		if x := &c.Changes[i]; x.Key.Kind == kindLetter && x.Op == engine.Delete {
			letters = append(letters, x.Key.Name)
		}
	}
	switch {
	case letters == nil:
	case s.op == "discard":
		db.parts.discarding(letters)
	default:
		db.parts.removing(s.p, letters)
	}
}

// changed sees changes that have taken effect.
func (db *database) changed(c *memory.Call, s *step) {
	for i := range c.Changes {
		x := &c.Changes[i]
		row := engine.Row{Fields: x.Set}
		switch x.Key.Kind {
		case kindMeta:
			db.noteSettled()
		case kindMarker:
			db.noteMarker(c, x, &row)
		case kindRecord:
			if x.Op == engine.Delete {
				db.noteSwept(x.Key.Name)
			}
		case kindShard:
			if x.Op == engine.Delete && countmill.IsGroup(x.Key.Name) {
				db.leaving[x.Key.Name] = true
			}
		case kindDay:
			if c.Changes[0].Key.Kind == kindShard && len(c.Changes[0].Unset) > 0 && i == 1 {
				db.Moved++
			}
		case kindLetter:
			db.noteLetter(x.Key.Name)
		}
	}
	if commit := foldOf(c); commit != nil {
		db.noteFolded(commit)
		db.applied(s.p, commit, s.came)
	}
	if db.verbose && s.p != nil {
		db.say(s.p, "   %s takes effect", callText(c))
	}
}

// noteMarker reports a decision about a letter, a reset, or values of a sequence.
func (db *database) noteMarker(c *memory.Call, x *engine.Change, row *engine.Row) {
	id := wire.PartID([]byte(x.Key.Name))
	db.parts.decisions[id] = store.Decision(row.Int64(fieldFingerprint))
	r, _ := c.Ctx.Value(resetKey{}).(*store.ResetRequest)
	switch first := row.Int64(fieldFirst); {
	case first > 0:
		db.values.gave(c.Changes[len(c.Changes)-1].Key.Name, id, store.Given{First: first, Count: int(row.Int64(fieldValues))})
	case r != nil:
		by, _ := c.Ctx.Value(opKey{}).(int)
		done := store.ResetResult{Removed: row.Int(fieldRemoved), At: time.UnixMicro(row.Int64(fieldAt)).UTC()}
		db.Resets++
		if was := db.totalAt(r.Counter, done.At); was != int64(r.Look.Sum.Lo) {
			db.violate("a reset of %s as of %s takes %d for its sum, when it was %d", r.Counter, done.At.Format(clockFormat), r.Look.Sum, was)
		}
		db.totals.reset(r, &done, by)
	}
}

// noteSettled notes the settings after they were written.
func (db *database) noteSettled() {
	set := db.settings()
	db.setClocks(func() { db.set = set })
	if set.Window != db.window() {
		db.windows = append(db.windows, set.Window)
		db.say(nil, "the window is %s from now on, nothing of before %s counts", set.Window, set.ForgetBefore.Format(clockFormat))
	}
	db.groups.ruled(set.Rules)
}

// noteSwept notes that a record is gone, with all of its counter.
func (db *database) noteSwept(counter string) {
	db.swept[counter] = db.Steps
	delete(db.leaving, counter)
	db.folds[counter] = append(db.folds[counter], foldedTo{db.mem.Latest(), 0})
	db.Swept++
	if left := must(db.own.ShardsOf(background, counter)).Shards; len(left) > 0 {
		db.violate("%s is removed, and %d of its shards are left", counter, len(left))
	}
	if left := db.buckets(counter); len(left) > 0 {
		db.violate("%s is removed, and %d buckets of its series are left", counter, len(left))
	}
}

// alone is the context of a call of the simulator by the store of a process.
func alone() context.Context { return context.WithValue(background, aloneKey{}, true) }

// foldOf returns the commit of an aggregator's fold that a call is; nil for other calls.
func foldOf(c *memory.Call) *store.Commit {
	commit, _ := c.Ctx.Value(foldKey{}).(*store.Commit)
	if c.Op != memory.Commit {
		return nil
	}
	return commit
}

// failFold breaks a fold in one of the ways that no other change has, and returns the error for the caller.
// The error is nil if no fault happens, or a fault that callers do not notice.
func (db *database) failFold(c *store.Commit, apply func() error) error {
	switch {
	case db.strikes(FoldNotBegun):
		return fmt.Errorf("sim: %w", engine.ErrNotApplied)
	case db.strikes(FoldContended):
		db.maybe(apply)
		return fmt.Errorf("sim: %w", engine.ErrContended)
	case db.strikes(FoldResent):
		_ = apply() // and again
	case db.strikes(FoldExists) && len(c.Markers) > 0:
		return fmt.Errorf("sim: %w", engine.ErrExists)
	case db.strikes(FoldIgnored):
		// Its parts are neither counted nor marked: the answer says OK, and lacks results.
		return fmt.Errorf("sim: %w", engine.ErrNotCounted)
	}
	return nil
}

// mayApply is maybe for a commit. One of an embedded store is applied while its process runs, or never.
func (db *database) mayApply(apply func() error) {
	left := len(db.delayed)
	if db.maybe(apply); db.embedded && len(db.delayed) > left {
		db.delayed = db.delayed[:left]
		_ = apply()
	}
}

// poisoned reports whether the store refuses the commit for its content.
func (db *database) poisoned(c *store.Commit) bool {
	return (db.cured == 0 || db.Steps < db.cured) && slices.ContainsFunc(c.Adds, func(a store.ShardDelta) bool { return a.Counter == poison })
}
