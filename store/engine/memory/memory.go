// Package memory is the reference of package engine: a database in memory, of a map with the versions of each row, and
// one mutex. It takes the limits of any database, so every form of a store's protocols can run over it. It gives each
// answer on demand, such as a lost or late one ([Call]), and it can lose its power.
//
// It starts no goroutines and uses no clock but Options.Clock, so it works inside a testing/synctest bubble.
package memory

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/countmill/countmill/store/engine"
)

// Options fit the database to a test.
type Options struct {
	// Limits are what Limits returns. Default 1,000 Keys, 4 Commits, and nothing else.
	Limits engine.Limits
	// Clock is the database's clock. Default time.Now.
	Clock func() time.Time
	// Errorf gets mistakes of the caller, such as a change that breaks a rule. The call is refused in any case. Tests
	// pass t.Errorf. Default nil: mistakes are not reported.
	Errorf func(format string, args ...any)
	// Past is how long the database keeps old versions for ShowPast. Default 0.
	Past time.Duration
}

// A Database keeps all data. Its engines are the processes that have it open.
type Database struct {
	Options
	kinds engine.Kinds

	mu      sync.Mutex
	rows    map[engine.Key]*row
	scanned []scanned // by kind
	last    int64     // the latest moment
	hard    int64     // the moment of the latest commit that is not soft
	synced  int64     // the disk has everything up to this moment
	held    chan struct{}
	views   map[*view]struct{}
	past    int64 // of the next view; 0 for the present
	around  func(*Call, func() error) error
	check   error
	restore int64
	lives   int // rises when the power is cut
}

// New returns an empty database of these kinds.
func New(kinds engine.Kinds, opts Options) *Database {
	opts.Limits.Keys, opts.Limits.Commits = cmp.Or(opts.Limits.Keys, 1000), cmp.Or(opts.Limits.Commits, 4)
	if opts.Clock == nil {
		opts.Clock = time.Now
	}
	if opts.Errorf == nil {
		opts.Errorf = func(string, ...any) {}
	}
	return &Database{Options: opts, kinds: kinds, rows: make(map[engine.Key]*row), scanned: make([]scanned, len(kinds)), views: make(map[*view]struct{})}
}

// Open returns an engine over the database.
func (d *Database) Open() engine.Engine {
	d.mu.Lock()
	defer d.mu.Unlock()
	return &process{d: d, life: d.lives}
}

// HoldSyncs makes commits wait for the disk until release is called. Calls that show such a commit wait too.
func (d *Database) HoldSyncs() (release func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	held := cmp.Or(d.held, make(chan struct{}))
	d.held = held
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.held == held {
			d.synced, d.held = d.last, nil
			close(held)
		}
	}
}

// CutPower removes all changes that the disk does not have, and ends all engines.
func (d *Database) CutPower() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for key, r := range d.rows {
		for len(r.versions) > 0 && r.newest().at > d.synced {
			r.versions = r.versions[:len(r.versions)-1]
		}
		if len(r.versions) == 0 {
			delete(d.rows, key)
		}
	}
	d.lives++
	d.hard = d.synced
	clear(d.views)
	if d.held != nil {
		close(d.held)
		d.held = nil
	}
}

// Expire removes the rows of all kinds that expire and whose Due is below now, as a database with Limits.Expires does
// by itself.
func (d *Database) Expire(now time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	at := d.nextLocked()
	for id := range d.kinds {
		if d.kinds[id].Expires {
			d.expireLocked(engine.KindID(id), now.UnixMicro(), at)
		}
	}
}

// Damage makes a row unreadable (engine.Row.Bad).
func (d *Database) Damage(key engine.Key, reason string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.rowLocked(key).add(version{at: d.nextLocked(), exists: true, bad: reason})
}

// Fail is the answer of Check from now on: engine.ErrOtherDatabase, for example, or nil. restores is Checked.Restores.
func (d *Database) Fail(err error, restores int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.check, d.restore = err, restores
}

// nowLocked returns the clock's time in microseconds, or the latest moment if that is later.
func (d *Database) nowLocked() int64 { return max(d.Clock().UnixMicro(), d.last) }

// nextLocked returns a moment after all others.
func (d *Database) nextLocked() int64 {
	d.last = max(d.nowLocked(), d.last+1)
	return d.last
}

func timeOf(at int64) time.Time { return time.UnixMicro(at).UTC() }

// A row has the versions that a view or a power cut may show, the oldest first. A version never changes.
type row struct{ versions []version }

type version struct {
	at     int64
	exists bool
	bad    string
	data   []byte
	fields []engine.Field
}

func (r *row) newest() *version { return r.as(1<<63 - 1) }

// as returns the version of a moment. A row that does not exist has the zero version.
func (r *row) as(at int64) *version {
	if r != nil {
		for i := len(r.versions) - 1; i >= 0; i-- {
			if v := &r.versions[i]; v.at <= at {
				return v
			}
		}
	}
	return new(version)
}

func (r *row) add(v version) { r.versions = append(r.versions, v) }

// forget drops the versions that nobody can see at oldest or later.
func (r *row) forget(oldest int64) {
	n := 0
	for n+1 < len(r.versions) && r.versions[n+1].at <= oldest {
		n++
	}
	r.versions = slices.Delete(r.versions, 0, n)
}

// rowLocked returns a row, and makes an empty one.
func (d *Database) rowLocked(key engine.Key) *row {
	r := d.rows[key]
	if r == nil {
		r = new(row)
		d.rows[key] = r
		d.scanned[key.Kind].added = append(d.scanned[key.Kind].added, key)
	}
	return r
}

// oldestLocked is the oldest moment that a view or a power cut may show.
func (d *Database) oldestLocked() int64 {
	oldest := d.synced
	for v := range d.views {
		oldest = min(oldest, v.at)
	}
	return min(oldest, d.last-d.Options.Past.Microseconds())
}

// A process is an engine over the database.
type process struct {
	d      *Database
	life   int
	closed bool
}

var (
	errClosed = errors.New("memory: closed")
	errPower  = errors.New("memory: the power is cut")
)

func (p *process) openLocked() error {
	switch {
	case p.closed:
		return errClosed
	case p.life != p.d.lives:
		return errPower
	}
	return nil
}

func (p *process) Limits() engine.Limits { return p.d.Limits }

func (p *process) Close() error {
	p.d.mu.Lock()
	defer p.d.mu.Unlock()
	p.closed = true
	return nil
}

func (p *process) Moment() time.Time {
	p.d.mu.Lock()
	defer p.d.mu.Unlock()
	if !p.d.Limits.Exclusive {
		return time.Time{}
	}
	return timeOf(p.d.nextLocked())
}

func (p *process) Resume(at time.Time) {
	p.d.mu.Lock()
	defer p.d.mu.Unlock()
	p.d.last = max(p.d.last, at.UnixMicro())
}

// durable waits until the disk has all commits up to a moment.
func (p *process) durable(ctx context.Context, at int64) error {
	for {
		p.d.mu.Lock()
		err, held, done := p.openLocked(), p.d.held, p.d.synced >= min(at, p.d.hard)
		p.d.mu.Unlock()
		if err != nil || done {
			return err
		}
		select {
		case <-held:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (p *process) Check(ctx context.Context, with []engine.Key) (checked engine.Checked, err error) {
	c := &Call{Ctx: ctx, Op: Check, Keys: with}
	err = p.call(c, func() error {
		d, v := p.d, &view{p: p}
		defer v.Close()
		rows, err := v.readNow(c, []engine.FieldID{engine.All})
		if err != nil {
			return err
		}
		d.mu.Lock()
		defer d.mu.Unlock()
		checked = engine.Checked{At: d.answered(v.at), Restores: d.restore, Rows: rows}
		return d.check
	})
	return checked, err
}

// answered is the time of an answer.
func (d *Database) answered(at int64) time.Time {
	if !d.Limits.Clock {
		return time.Time{}
	}
	return timeOf(at)
}

// Due sorts all rows of the kind by texts that begin with their Due.
func (p *process) Due(ctx context.Context, kind engine.KindID, before int64, after string, limit int) (keys []engine.Key, next string, err error) {
	d := p.d
	err = p.call(&Call{Ctx: ctx, Op: Due, Kind: kind}, func() error {
		d.mu.Lock()
		defer d.mu.Unlock()
		if err := cmp.Or(p.openLocked(), ctx.Err()); err != nil {
			return err
		}
		due := make(map[string]engine.Key)
		for _, key := range d.scanned[kind].sortedLocked(d, false) {
			at, ok := d.dueLocked(key)
			text := fmt.Sprintf("%016x%016x%08x%s", uint64(at)^1<<63, key.Place, key.Part, key.Name)
			if ok && at <= before && text > after {
				due[text] = key
			}
		}
		texts := slices.Sorted(maps.Keys(due))
		for i, text := range texts[:min(len(texts), limit)] {
			if keys = append(keys, due[text]); i+1 < len(texts) {
				next = text
			} else {
				next = ""
			}
		}
		return nil
	})
	return keys, next, err
}

// dueLocked returns the Due of a row.
func (d *Database) dueLocked(key engine.Key) (due int64, ok bool) {
	v := d.rows[key].newest()
	r := engine.Row{Fields: v.fields}
	due = r.Int64(d.kinds[key.Kind].Due)
	return due, v.exists && due != 0
}

func (p *process) Expire(ctx context.Context, kind engine.KindID, before int64) error {
	return p.call(&Call{Ctx: ctx, Op: Expire, Kind: kind}, func() error {
		d := p.d
		d.mu.Lock()
		defer d.mu.Unlock()
		err := cmp.Or(p.openLocked(), ctx.Err())
		if err == nil && !d.Limits.Expires {
			d.expireLocked(kind, before, d.nextLocked())
		}
		return err
	})
}

func (d *Database) expireLocked(kind engine.KindID, before, at int64) {
	for _, key := range d.scanned[kind].sortedLocked(d, false) {
		if due, ok := d.dueLocked(key); ok && due < before {
			d.rows[key].add(version{at: at})
		}
	}
}

// Latest returns the latest moment of a commit or a view.
func (d *Database) Latest() time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	return timeOf(d.last)
}
