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
	errExpired    = errors.New("sim: the transaction has expired")
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
	fieldFirst, fieldValues   = fieldNamed(kindMarker, "first"), fieldNamed(kindMarker, "values")
)

// around parks for each call of a process, and decides what becomes of it.
func (db *database) around(c *memory.Call, do func() error) (err error) {
	db.mu.Lock()
	p := db.engines[c.By]
	db.mu.Unlock()
	s := &step{p: p, ctx: c.Ctx, op: db.nameOf(c), key: keyOf(c)}
	if changes(c) && db.watch != nil { // or it is just being made
		do = db.watched(c, s, do)
	}
	if p == nil || c.Ctx.Value(aloneKey{}) != nil {
		return do()
	}
	s.asks, s.gets = func() string { return callText(c) }, func() string { return answerText(err, nil) }
	if f, ok := c.Ctx.Value(foldKey{}).(*foldCall); ok && c.Op == memory.Commit {
		s.commit = &f.commit
		s.asks = func() string { return commitText(&f.commit) }
		s.gets = func() string { return f.row.String() }
		s.run = func(end callEnd) { err = db.fold(s, f, end, do) }
	} else {
		s.run = func(end callEnd) { err = db.answer(c, s, end, do) }
	}
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
func (db *database) answer(c *memory.Call, s *step, end callEnd, do func() error) error {
	x, mayChange := db.faultsOf(c, s.p), changes(c)
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
	if c.Blank = lookUp && db.strikes(LookupBlank); lookUp && !c.Blank {
		db.noteLookUp(s.p, c.Keys)
	}
	return do()
}

// callFaults are the faults of a call: none is below 0.
type callFaults struct{ lost, answerLost, late Fault }

// ofIndexes are what happens to calls of workers of indexes.
var ofIndexing = callFaults{IndexLost, IndexAnswerLost, IndexLate}

// faultsOf returns the faults of a call.
func (db *database) faultsOf(c *memory.Call, p *proc) callFaults {
	indexing := c.Ctx.Value(indexKey{}) != nil
	switch c.Op {
	case memory.Check:
		return callFaults{lost: CheckFails}
	case memory.Due, memory.Expire:
		return callFaults{SweepLost, SweepAnswerLost, -1}
	case memory.Get, memory.Scan:
		kind := c.Kind
		if len(c.Keys) > 0 {
			kind = c.Keys[0].Kind
		}
		switch {
		case indexing:
			return callFaults{lost: IndexFails}
		case kind == kindLetter || kind == kindChunk || kind == kindLetterRef:
			return callFaults{lost: DeadLettersFail}
		case kind == kindMarker || p.role == aggregating:
			return callFaults{lost: LookupFails}
		}
		return callFaults{lost: ReadFails}
	}
	if indexing {
		return ofIndexing
	}
	switch kindOfCall(c) {
	case kindMeta:
		return callFaults{RulesLost, RulesAnswerLost, RulesLate}
	case kindMarker: // of a decision
		return callFaults{FoldNotApplied, FoldApplied, FoldLate}
	case kindRecord:
		if c.Ctx.Value(resetKey{}) != nil {
			return callFaults{ResetLost, ResetAnswerLost, ResetLate}
		}
		return callFaults{GrowthLost, GrowthAnswerLost, GrowthLate}
	case kindLetter, kindChunk, kindLetterRef:
		if removes(c) {
			return callFaults{DiscardLost, DiscardAnswerLost, DiscardLate}
		}
		return callFaults{DeadLetterLost, DeadLetterAnswerLost, -1}
	case kindWorker:
		return callFaults{HeartbeatLost, -1, -1}
	case kindSequence:
		return callFaults{SequenceLost, SequenceAnswerLost, SequenceLate}
	case kindRange, kindRemainder:
		return ofIndexing
	}
	return callFaults{SweepLost, SweepAnswerLost, SweepLate}
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

// nameOf names a call.
func (db *database) nameOf(c *memory.Call) string {
	if name, ok := c.Ctx.Value(nameKey{}).(string); ok {
		return name
	}
	return opNames[c.Op] + " " + protocol.Kinds[kindOfCall(c)].Name
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
		if c.Op == memory.Transact && s.p != nil && !db.embedded && db.wall().Sub(begun) > store.MaxTransaction {
			return errExpired
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
	if c.Op == memory.Expire && c.Kind == kindMarker {
		db.watch.forgetting()
	}
	var letters []string
	for i := range c.Changes {
		switch x := &c.Changes[i]; {
		case x.Key.Kind == kindLetter && x.Op == engine.Delete:
			letters = append(letters, x.Key.Name)
		case x.Key.Kind == kindRecord && len(x.Max) > 0:
			if named := db.shardsNamed(x.Key.Name); named > 0 && int64(named) < int64(x.Max[0].Value.Lo) {
				db.Grown++
			}
		}
	}
	switch {
	case letters == nil:
	case s.op == "discard":
		db.watch.discarding(letters)
	default:
		db.watch.removing(s.p, letters)
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
	if db.verbose && s.p != nil {
		db.say(s.p, "   %s takes effect", callText(c))
	}
}

// noteMarker reports a reset, or values of a sequence.
func (db *database) noteMarker(c *memory.Call, x *engine.Change, row *engine.Row) {
	id := wire.PartID([]byte(x.Key.Name))
	r, _ := c.Ctx.Value(resetKey{}).(*store.ResetRequest)
	switch first := row.Int64(fieldFirst); {
	case first > 0:
		db.watch.gave(c.Changes[len(c.Changes)-1].Key.Name, id, store.Given{First: first, Count: int(row.Int64(fieldValues))})
	case r != nil:
		by, _ := c.Ctx.Value(opKey{}).(int)
		done := store.ResetResult{Removed: row.Int(fieldRemoved), At: time.UnixMicro(row.Int64(fieldAt)).UTC()}
		db.Resets++
		if was := db.totalAt(r.Counter, done.At); was != int64(r.Look.Sum.Lo) {
			db.violate("a reset of %s as of %s takes %d for its sum, when it was %d", r.Counter, done.At.Format(clockFormat), r.Look.Sum, was)
		}
		db.watch.reset(r, &done, by)
	}
}

// noteSettled notes the settings after they were written.
func (db *database) noteSettled() {
	set := db.settings()
	db.setClocks(func() { db.set = set })
	if set.Window != db.window() {
		db.windows = append(db.windows, set.Window)
		db.trace("window", nil, "", uint64(set.Window))
		db.say(nil, "the window is %s from now on, nothing of before %s counts", set.Window, set.ForgetBefore.Format(clockFormat))
	}
	db.watch.ruled(set.Rules)
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
