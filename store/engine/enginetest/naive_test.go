package enginetest_test

import (
	"context"
	"errors"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/countmill/countmill/store/engine"
	"github.com/countmill/countmill/store/engine/enginetest"
	"github.com/countmill/countmill/store/engine/memory"
)

// A naive engine breaks one promise. limits is a key of databases.
type naive struct {
	caught string // the test that fails
	limits string
	make   func(engine.Engine) engine.Engine
}

var naives = map[string]naive{
	"checks only rows that it writes":         {caught: "ReadRowIsTheSame", make: rechecks(func(_ *engine.Row, written bool) bool { return written })},
	"checks only rows that it has found":      {caught: "AbsentRowStaysAbsent", make: rechecks(func(r *engine.Row, _ bool) bool { return r.Exists })},
	"runs a function again":                   {caught: "ReadRowIsTheSame", make: transacts(runsAgain)},
	"applies the changes of an error":         {caught: "ErrorAppliesNothing", make: transacts(ignoresErrors)},
	"commits one kind after the other":        {caught: "CommitIsWhole", make: commits(byKind)},
	"makes rows by updates":                   {caught: "UpdateMakesNothing", make: changes(func(c *engine.Change) { c.Op = map[engine.Op]engine.Op{engine.Update: engine.Upsert}[c.Op] })},
	"sets what should be the most":            {caught: "MaxNeverLowers", make: changes(func(c *engine.Change) { c.Set, c.Max = slices.Concat(c.Set, c.Max), nil })},
	"keeps changes that it has borrowed":      {caught: "ChangesAreBorrowed", make: commits(keepsPointers)},
	"saturates":                               {caught: "SumsAreExact", make: commits(saturates)},
	"leaves fields of deleted rows":           {caught: "DeleteForgets", make: func(e engine.Engine) engine.Engine { return &haunted{Engine: e, graves: map[engine.Key]engine.Row{}} }},
	"knows an id by its time":                 {caught: "IdentityIsTheKey", make: commits(byTime)},
	"checks no rows that it writes":           {caught: "DeleteBesideAnAddition", make: rechecks(func(_ *engine.Row, written bool) bool { return !written })},
	"checks only what it reads first":         {caught: "ReadRowIsTheSame", make: transacts(checksFirst)},
	"ranges over changes twice":               {caught: "ChangesAreBorrowed", make: commits(rangesTwice)},
	"takes 100 fields":                        {caught: "LimitsAreTaken", make: changes(func(c *engine.Change) { c.Add = c.Add[:min(len(c.Add), 100)] })},
	"requires nothing of a commit of nothing": {caught: "RequireHolds", limits: "directory", make: commits(ignoresEmpty)},
	"views the newest rows":                   {caught: "ViewIsPinned", make: views(func(v *oddView) { v.unpinned = true })},
	"reads, and then looks at the clock":      {caught: "MomentsCoverCommits", limits: "service", make: views(func(v *oddView) { v.late = time.Second })},
	"ends a prefix with the next byte":        {caught: "ScanPrefixes", make: views(func(v *oddView) { v.spoil = nextByte })},
	"begins a page with the last row":         {caught: "ScanByKeys", make: views(func(v *oddView) { v.spoil = func(r *engine.Range) { r.After = false } })},
	"says what the disk does not have":        {caught: "AnswersAreDurable", make: func(e engine.Engine) engine.Engine { return &hasty{Engine: e, inserted: map[string]bool{}} }},
	"writes soft commits later":               {caught: "SoftIsImplied", make: func(e engine.Engine) engine.Engine { return &lazy{Engine: e} }},
	"writes soft commits before others only":  {caught: "SoftIsImplied", limits: "server", make: func(e engine.Engine) engine.Engine { return &lazy{Engine: e, ordered: true} }},
	"lists what was due before":               {caught: "DueMissesNothing", make: func(e engine.Engine) engine.Engine { return tardy{e} }},
}

const naiveEnv = "COUNTMILL_TEST_NAIVE_ENGINE"

// TestSuiteSeesNaiveEngines runs the test that has to fail on each naive engine, in another process.
func TestSuiteSeesNaiveEngines(t *testing.T) {
	t.Parallel()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for name, n := range naives {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd := exec.CommandContext(t.Context(), exe, "-test.run", "^TestNaive$/^"+n.caught+"$", "-test.timeout", "5m")
			cmd.Env = append(os.Environ(), naiveEnv+"="+name)
			out, err := cmd.CombinedOutput()
			if err == nil || !strings.Contains(string(out), "--- FAIL: TestNaive/"+n.caught) {
				t.Errorf("%s does not see an engine that %s (%v):\n%s", n.caught, name, err, out)
			}
		})
	}
}

func TestNaive(t *testing.T) {
	name := os.Getenv(naiveEnv)
	if name == "" {
		t.Skip("runs in the other process of TestSuiteSeesNaiveEngines")
	}
	n := naives[name]
	enginetest.Run(t, func(t *testing.T, kinds engine.Kinds) *enginetest.Under {
		u := under(t, memory.New(kinds, memory.Options{Limits: databases[n.limits]}))
		reopen, cut := u.Reopen, u.CutPower
		u.Reopen = func(t *testing.T) engine.Engine { return n.make(reopen(t)) }
		u.CutPower = func(t *testing.T) engine.Engine { return n.make(cut(t)) }
		u.Engine = n.make(u.Engine)
		return u
	})
}

// A committing engine has another Commit.
type committing struct {
	engine.Engine
	commit func(ctx context.Context, e engine.Engine, c *engine.Commit) (engine.Result, error)
}

func (e committing) Commit(ctx context.Context, c *engine.Commit) (engine.Result, error) {
	return e.commit(ctx, e.Engine, c)
}

func commits(commit func(context.Context, engine.Engine, *engine.Commit) (engine.Result, error)) func(engine.Engine) engine.Engine {
	return func(e engine.Engine) engine.Engine { return committing{e, commit} }
}

// clones returns copies of the changes of a commit.
func clones(c *engine.Commit) (all []engine.Change) {
	if c.Changes != nil {
		for change := range c.Changes {
			all = append(all, change.Clone())
		}
	}
	return all
}

func with(c *engine.Commit, all []engine.Change) *engine.Commit {
	return &engine.Commit{Changes: engine.Changes(all...), Require: c.Require, Soft: c.Soft}
}

// changes spoils each change.
func changes(spoil func(*engine.Change)) func(engine.Engine) engine.Engine {
	return commits(func(ctx context.Context, e engine.Engine, c *engine.Commit) (engine.Result, error) {
		all := clones(c)
		for i := range all {
			spoil(&all[i])
		}
		return e.Commit(ctx, with(c, all))
	})
}

func byKind(ctx context.Context, e engine.Engine, c *engine.Commit) (result engine.Result, err error) {
	all := clones(c)
	for len(all) > 0 && err == nil {
		n := 1
		for n < len(all) && all[n].Key.Kind == all[0].Key.Kind {
			n++
		}
		result, err = e.Commit(ctx, with(c, all[:n]))
		all = all[n:]
		time.Sleep(time.Millisecond)
	}
	return result, err
}

func keepsPointers(ctx context.Context, e engine.Engine, c *engine.Commit) (engine.Result, error) {
	var all []engine.Change
	for change := range c.Changes {
		all = append(all, *change) // and not its lists
	}
	return e.Commit(ctx, with(c, all))
}

// saturates keeps sums of 64 bits.
func saturates(ctx context.Context, e engine.Engine, c *engine.Commit) (engine.Result, error) {
	return e.Transact(ctx, c.Soft, func(tx engine.Tx) error {
		for _, change := range clones(c) {
			rows, err := tx.Get(ctx, []engine.Key{change.Key}, engine.All)
			if err != nil {
				return err
			}
			for _, f := range change.Add {
				sum, least, most := rows[0].Int(f.ID).Add(f.Value), engine.IntOf(-1<<63), engine.IntOf(1<<63-1)
				if sum.Cmp(least) < 0 {
					sum = least
				} else if sum.Cmp(most) > 0 {
					sum = most
				}
				change.Set = append(change.Set, engine.Field{ID: f.ID, Value: sum})
			}
			change.Add = nil
			tx.Change(&change)
		}
		return nil
	})
}

// byTime takes an id with another time for another id.
func byTime(ctx context.Context, e engine.Engine, c *engine.Commit) (engine.Result, error) {
	all := slices.DeleteFunc(clones(c), func(change engine.Change) bool {
		if change.Op != engine.Insert {
			return false
		}
		v := e.View()
		defer v.Close()
		rows, err := v.Get(ctx, []engine.Key{change.Key}, engine.All)
		return err == nil && rows[0].Exists && !slices.Equal(rows[0].Fields, change.Set)
	})
	return e.Commit(ctx, with(c, all))
}

func ignoresEmpty(ctx context.Context, e engine.Engine, c *engine.Commit) (engine.Result, error) {
	if len(clones(c)) == 0 {
		return engine.Result{}, nil
	}
	return e.Commit(ctx, c)
}

func rangesTwice(ctx context.Context, e engine.Engine, c *engine.Commit) (engine.Result, error) {
	_ = clones(c)
	return e.Commit(ctx, c)
}

// A transacting engine has another Transact.
type transacting struct {
	engine.Engine
	transact func(ctx context.Context, e engine.Engine, soft bool, do func(engine.Tx) error) (engine.Result, error)
}

func (e transacting) Transact(ctx context.Context, soft bool, do func(engine.Tx) error) (engine.Result, error) {
	return e.transact(ctx, e.Engine, soft, do)
}

func transacts(transact func(context.Context, engine.Engine, bool, func(engine.Tx) error) (engine.Result, error)) func(engine.Engine) engine.Engine {
	return func(e engine.Engine) engine.Engine { return transacting{e, transact} }
}

func runsAgain(ctx context.Context, e engine.Engine, soft bool, do func(engine.Tx) error) (engine.Result, error) {
	for {
		if result, err := e.Transact(ctx, soft, do); !errors.Is(err, engine.ErrConflict) {
			return result, err
		}
	}
}

func ignoresErrors(ctx context.Context, e engine.Engine, soft bool, do func(engine.Tx) error) (engine.Result, error) {
	var failed error
	result, err := e.Transact(ctx, soft, func(tx engine.Tx) error { failed = do(tx); return nil })
	return result, errors.Join(failed, err)
}

// A firstRead reads through its transaction once, and then beside it.
type firstRead struct {
	engine.Tx
	view engine.View
	read bool
}

func (t *firstRead) Get(ctx context.Context, keys []engine.Key, fields ...engine.FieldID) ([]engine.Row, error) {
	if t.read {
		return t.view.Get(ctx, keys, fields...)
	}
	t.read = true
	return t.Tx.Get(ctx, keys, fields...)
}

func checksFirst(ctx context.Context, e engine.Engine, soft bool, do func(engine.Tx) error) (engine.Result, error) {
	v := e.View()
	defer v.Close()
	return e.Transact(ctx, soft, func(tx engine.Tx) error { return do(&firstRead{Tx: tx, view: v}) })
}

// A noting transaction reads in a view, and notes everything.
type noting struct {
	engine.View
	read    map[engine.Key]engine.Row
	changes []engine.Change
}

func (t *noting) Get(ctx context.Context, keys []engine.Key, fields ...engine.FieldID) ([]engine.Row, error) {
	rows, err := t.View.Get(ctx, keys, fields...)
	for i := range rows {
		t.read[keys[i]] = rows[i]
	}
	return rows, err
}

func (t *noting) Now() time.Time          { return t.At() }
func (t *noting) Restores() int64         { return 0 }
func (t *noting) Change(c *engine.Change) { t.changes = append(t.changes, c.Clone()) }

// rechecks looks again at some of the rows that a transaction has read, when it ends.
func rechecks(these func(r *engine.Row, written bool) bool) func(engine.Engine) engine.Engine {
	return transacts(func(ctx context.Context, e engine.Engine, soft bool, do func(engine.Tx) error) (engine.Result, error) {
		t := &noting{View: e.View(), read: make(map[engine.Key]engine.Row)}
		defer t.Close()
		if err := do(t); err != nil {
			return engine.Result{}, err
		}
		return e.Transact(ctx, soft, func(tx engine.Tx) error {
			for key, row := range t.read {
				if !these(&row, slices.ContainsFunc(t.changes, func(c engine.Change) bool { return c.Key == key })) {
					continue
				}
				now, err := tx.Get(ctx, []engine.Key{key}, engine.All)
				if err != nil || now[0].Exists != row.Exists || !slices.Equal(now[0].Fields, row.Fields) || string(now[0].Data) != string(row.Data) {
					return errors.Join(engine.ErrConflict, err)
				}
			}
			for i := range t.changes {
				tx.Change(&t.changes[i])
			}
			return nil
		})
	})
}

// haunted adds the sums of a deleted row to those of its successor.
type haunted struct {
	engine.Engine
	mu     sync.Mutex
	graves map[engine.Key]engine.Row
}

func (e *haunted) Commit(ctx context.Context, c *engine.Commit) (engine.Result, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	all := clones(c)
	for i := range all {
		key := all[i].Key
		if key.Kind != 2 { // shards
			continue
		}
		if all[i].Op == engine.Delete {
			v := e.View()
			rows, err := v.Get(ctx, []engine.Key{key}, engine.All)
			v.Close()
			if err != nil {
				return engine.Result{}, err
			}
			e.graves[key] = rows[0]
			continue
		}
		if old := e.graves[key]; old.Exists && len(all[i].Add) == 1 {
			fields := map[engine.FieldID]engine.Field{}
			for _, f := range slices.Concat(old.Fields[1:], all[i].Add) {
				fields[f.ID] = f
			}
			all[i].Add = slices.SortedFunc(maps.Values(fields), func(a, b engine.Field) int { return int(a.ID) - int(b.ID) })
			delete(e.graves, key)
		}
	}
	return e.Engine.Commit(ctx, with(c, all))
}

// hasty answers ErrExists from memory, before the row is on disk.
type hasty struct {
	engine.Engine
	mu       sync.Mutex
	inserted map[string]bool
}

func (e *hasty) Commit(ctx context.Context, c *engine.Commit) (engine.Result, error) {
	all := clones(c)
	e.mu.Lock()
	for i := range all {
		if all[i].Op == engine.Insert {
			if name := all[i].Key.Name; e.inserted[name] {
				e.mu.Unlock()
				return engine.Result{}, engine.ErrExists
			} else {
				e.inserted[name] = true
			}
		}
	}
	e.mu.Unlock()
	return e.Engine.Commit(ctx, with(c, all))
}

// lazy holds soft commits until somebody looks, or until another commit.
type lazy struct {
	engine.Engine
	ordered bool
	mu      sync.Mutex
	held    []*engine.Commit
}

func (e *lazy) Commit(ctx context.Context, c *engine.Commit) (engine.Result, error) {
	if !c.Soft {
		if e.ordered {
			e.View().Close()
		}
		return e.Engine.Commit(ctx, c)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.held = append(e.held, with(c, clones(c)))
	return engine.Result{}, nil
}

func (e *lazy) View() engine.View {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, c := range e.held {
		_, _ = e.Engine.Commit(context.Background(), c)
	}
	e.held = nil
	return e.Engine.View()
}

type tardy struct{ engine.Engine }

func (e tardy) Due(ctx context.Context, kind engine.KindID, before int64, after string, limit int) ([]engine.Key, string, error) {
	return e.Engine.Due(ctx, kind, before-1, after, limit)
}

// views returns an engine whose views are spoiled.
func views(spoil func(*oddView)) func(engine.Engine) engine.Engine {
	return func(e engine.Engine) engine.Engine { return viewing{e, spoil} }
}

type viewing struct {
	engine.Engine
	spoil func(*oddView)
}

func (e viewing) View() engine.View {
	v := &oddView{View: e.Engine.View(), e: e.Engine}
	e.spoil(v)
	return v
}

type oddView struct {
	engine.View
	e        engine.Engine
	unpinned bool
	late     time.Duration
	spoil    func(*engine.Range)
}

func (v *oddView) Get(ctx context.Context, keys []engine.Key, fields ...engine.FieldID) ([]engine.Row, error) {
	if !v.unpinned || v.At().IsZero() {
		return v.View.Get(ctx, keys, fields...)
	}
	newest := v.e.View()
	defer newest.Close()
	return newest.Get(ctx, keys, fields...)
}

func (v *oddView) Scan(ctx context.Context, r engine.Range, fields ...engine.FieldID) engine.Rows {
	if v.spoil != nil {
		v.spoil(&r)
	}
	return v.View.Scan(ctx, r, fields...)
}

func (v *oddView) At() time.Time {
	if at := v.View.At(); !at.IsZero() {
		return at.Add(v.late)
	}
	return time.Time{}
}

// nextByte takes the names below that of the prefix with its last byte raised.
func nextByte(r *engine.Range) {
	if p := []byte(r.Prefix); len(p) > 0 && (r.To == engine.Key{}) {
		r.From.Name = max(r.From.Name, r.Prefix)
		p[len(p)-1]++
		r.To.Name, r.Prefix = string(p), ""
	}
}
