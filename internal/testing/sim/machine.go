package sim

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countmill/countmill/store/engine"
	"github.com/countmill/countmill/store/engine/memory"
	"github.com/countmill/countmill/store/protocol"
)

// A Machine has a database. With `up` it loses its power, which ends the process; otherwise processes lose connections to it, and live.
type Machine interface {
	// Up reports whether one process has the database.
	Up() bool
	// Open opens the database that is there.
	Open(clock func() time.Time, age func() time.Duration) (engine.Engine, error)
	// Arm comes before a call of a process, in which a connection may be lost.
	Arm()
	// Lost reports whether the power was cut since the database was opened, or a connection since Arm.
	Lost() bool
	// Spare ends all losses.
	Spare()
}

// Schedules runs schedules over machines for some time. seed is the only one, with its events, or 0 for fresh ones.
func Schedules(t *testing.T, limit time.Duration, seed uint64, machine func(seed uint64) Machine) {
	t.Helper()
	if os.Getenv("COUNTMILL_TEST_PLANTED") != "" {
		limit = 4 * time.Minute
	}
	only := seed != 0
	if !only {
		seed = 1 + rand.Uint64N(1<<40)
	}
	fmt.Printf("%s: schedules from seed %d on\n", t.Name(), seed) // first: a panic would keep it back
	var schedules, cuts, calls int
	for began := time.Now(); time.Since(began) < limit && !t.Failed() && (!only || schedules == 0); schedules++ {
		at := seed + uint64(schedules)
		v := &variant{machine: machine(at)}
		var r *Result
		synctest.Test(t, func(*testing.T) { r = runVariant(v, at, only) })
		cuts, calls = cuts+r.Cuts, calls+r.Calls
		for _, line := range r.Trace {
			fmt.Println(line)
		}
		for _, v := range r.Violations[:min(5, len(r.Violations))] {
			t.Errorf("seed %d: %.300s", at, v)
		}
	}
	t.Logf("%d schedules from seed %d on, %d calls of bus and store, %d cuts", schedules, seed, calls, cuts)
}

// A twin is a database of a machine, and its copy in memory. A change comes into the copy when it has taken effect. The moments of
// both rise together, so the copy shows the past, which the database does not keep. After each loss of power, and in the end, both have the same rows.
type twin struct {
	*kernel
	machine Machine
	copy    *memory.Database
	mirror  engine.Engine // of the copy

	engine engine.Engine
	soft   []engine.Key    // rows of the soft commits since the last other one
	lost   bool            // power, and no process has been started since
	old    []engine.Engine // of before
	ends   func()          // all processes that have the database
}

// open opens the database, again while the power is cut meanwhile.
func (tw *twin) open() {
	for opened := false; !opened; opened = !tw.machine.Lost() {
		if tw.engine != nil {
			tw.old = append(tw.old, tw.engine)
		}
		e, err := tw.machine.Open(func() time.Time { return tw.storeNow().UTC().Truncate(time.Microsecond) }, tw.age)
		if err != nil {
			panic(fmt.Errorf("seed %d: the database does not open: %w", tw.Seed, err))
		}
		tw.engine = e
	}
}

// change makes a call with changes. Its answer is lost with the power, unless the simulator itself asks. Where changes took effect with their
// connection, lost becomes the answer.
func (tw *twin) change(e engine.Engine, changes []engine.Change, soft bool, lost *error, do func() error) error {
	if e != tw.engine {
		return errFenced
	}
	e.Resume(tw.copy.Latest())
	err := do()
	switch cut := tw.machine.Lost(); {
	case cut && !tw.embedded:
		if tw.look(changes, err) {
			*lost = err
			return nil
		}
		return err
	case cut:
		if !tw.recover(changes) {
			return errFenced
		}
		return nil
	case err != nil:
		return err
	}
	tw.applied(changes)
	if tw.soft = append(tw.soft, keysOf(changes)...); !(soft && tw.embedded) && len(changes) > 0 {
		tw.soft = nil
	}
	return nil
}

func keysOf(changes []engine.Change) (keys []engine.Key) {
	for i := range changes {
		keys = append(keys, changes[i].Key)
	}
	return keys
}

// applied makes changes in the copy.
func (tw *twin) applied(changes []engine.Change) {
	tw.mirror.Resume(tw.engine.Moment())
	if _, err := tw.mirror.Transact(background, false, func(tx engine.Tx) error {
		for i := range changes {
			c := changes[i]
			c.Want = nil
			tx.Change(&c)
		}
		return nil
	}); err != nil {
		tw.violate("the database takes a change that its copy refuses: %v", err)
	}
}

// look reports whether changes took effect whose connection was lost.
func (tw *twin) look(changes []engine.Change, err error) bool {
	tw.Cuts++
	tw.say(nil, "!! a connection is lost: %v", err)
	applied := err == nil || slices.ContainsFunc(keysOf(changes), func(key engine.Key) bool { return !tw.same(key) })
	if applied && slices.ContainsFunc(notApplied, func(certain error) bool { return errors.Is(err, certain) }) {
		tw.violate("a change took effect, and its answer is %v", err)
	}
	if applied {
		tw.applied(changes)
	}
	tw.compare()
	return applied
}

// notApplied are the errors that are certain.
var notApplied = []error{engine.ErrExists, engine.ErrMissing, engine.ErrConflict, engine.ErrOutdated, engine.ErrRefused, engine.ErrNotApplied, engine.ErrDeployment}

// recover opens the rest, and reports whether the changes under way are in it. Soft ones may be gone.
func (tw *twin) recover(changes []engine.Change) bool {
	tw.lost = true
	tw.Cuts++
	tw.ends()
	tw.open()
	tw.say(nil, "!! the power is cut")
	found := slices.ContainsFunc(keysOf(changes), func(key engine.Key) bool { return !slices.Contains(tw.soft, key) && !tw.same(key) })
	if found { // and the soft ones before it
		tw.applied(changes)
	} else {
		for _, key := range tw.soft {
			tw.align(key)
		}
	}
	tw.soft = nil
	tw.compare()
	return found
}

func rowIn(e engine.Engine, key engine.Key) engine.Row {
	v := e.View()
	defer v.Close()
	return must(v.Get(background, []engine.Key{key}, engine.All))[0]
}

// align makes a row of the copy as that of the database is.
func (tw *twin) align(key engine.Key) {
	if row := rowIn(tw.engine, key); !tw.same(key) {
		tw.applied([]engine.Change{{Key: key, Op: engine.Delete}})
		if row.Exists {
			tw.applied([]engine.Change{{Key: key, Set: row.Fields, Data: row.Data}})
		}
	}
}

// same reports whether a row is as in the copy. The database may keep one that has expired.
func (tw *twin) same(key engine.Key) bool {
	a, b, kind := rowIn(tw.engine, key), rowIn(tw.mirror, key), &protocol.Kinds[key.Kind]
	return equal(&a, &b) || kind.Expires && !b.Exists && a.Int64(kind.Due) <= tw.storeNow().UnixMicro()
}

func equal(a, b *engine.Row) bool {
	return a.Exists == b.Exists && a.Bad == b.Bad && bytes.Equal(a.Data, b.Data) && slices.Equal(a.Fields, b.Fields)
}

// compare compares all rows. A database may keep rows that have expired.
func (tw *twin) compare() {
	for id := range protocol.Kinds {
		kind, k := engine.KindID(id), &protocol.Kinds[id]
		if k.Class == engine.Once {
			keys, _ := must2(tw.mirror.Due(background, kind, math.MaxInt64, "", math.MaxInt32))
			for _, key := range keys {
				if !tw.same(key) {
					tw.violate("the database lacks the %s %q, or has another", k.Name, key.Name)
				}
			}
			continue
		}
		theirs, ours := tw.rows(tw.engine, kind), tw.rows(tw.mirror, kind)
		for key, row := range theirs {
			if mine, ok := ours[key]; ok && !equal(&row, &mine) || !ok && !k.Expires {
				tw.violate("the database has the %s %q as %v, and its copy as %v (%t)", k.Name, key.Name, row.Fields, mine.Fields, ok)
			}
			delete(ours, key)
		}
		for key := range ours {
			tw.violate("the database lacks the %s %q", k.Name, key.Name)
		}
	}
}

func must2[A, B any](a A, b B, err error) (A, B) { return must(a, err), b }

// rows are all rows of a kind.
func (tw *twin) rows(e engine.Engine, kind engine.KindID) map[engine.Key]engine.Row {
	all := make(map[engine.Key]engine.Row)
	v := e.View()
	defer v.Close()
	scan := v.Scan(background, engine.Range{Kind: kind}, engine.All)
	defer scan.Close()
	for row := scan.Next(); row != nil; row = scan.Next() {
		r := *row
		r.Key.Name = strings.Clone(r.Key.Name)
		r.Data, r.Fields = slices.Clone(r.Data), slices.Clone(r.Fields)
		all[r.Key] = r
	}
	if err := scan.Err(); err != nil {
		tw.violate("the rows of %s: %v", protocol.Kinds[kind].Name, err)
	}
	return all
}

// close closes the databases of before the last loss of power, and in the end all.
func (tw *twin) close(all bool) {
	synctest.Wait()
	if all {
		tw.old = append(tw.old, tw.engine)
	}
	for _, e := range tw.old {
		_ = e.Close() // the disk is gone
	}
	tw.old = nil
}
