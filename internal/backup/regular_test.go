package backup

import (
	"context"
	"errors"
	"io"
	"iter"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countmill/countmill/backend"
	"github.com/countmill/countmill/backend/buckettest"
)

// running runs a keeper until the end of the test.
func running(t *testing.T, k *Keeper) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var run sync.WaitGroup
	run.Go(func() {
		if err := k.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	return func() { cancel(); run.Wait() }
}

// A restart continues the interval of the process before it.
func TestRegular(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, f := newMemory(), folder{t.TempDir()}
		f.step(t, 1)
		for process := range 3 {
			k := keeper(t, b, f, Config{Every: 15 * time.Minute})
			stop := running(t, k)
			time.Sleep(40*time.Minute + time.Second)
			stop()
			if got, want := len(listed(t, b)), []int{3, 6, 9}[process]; got != want {
				t.Errorf("after %d times 40 minutes: %d backups, want %d", process+1, got, want)
			}
			if age := time.Since(k.Stats().Last); age > 15*time.Minute {
				t.Errorf("the last backup is %s old", age)
			}
		}
	})
}

// A backup that was taken while the clock was ahead delays no others.
func TestRegularAfterAClockAhead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, f := newMemory(), folder{t.TempDir()}
		f.step(t, 1)
		m := manifest{Format: format, Database: f.ID(), BeganAt: time.Now().Add(24 * time.Hour), TakenAt: time.Now().Add(24 * time.Hour)}
		id, text, err := m.encode()
		if err != nil {
			t.Fatal(err)
		}
		buckettest.Put(t, b, "backups/"+id, text)
		for range 2 {
			began := time.Now()
			k := keeper(t, b, f, Config{Every: time.Hour})
			stop := running(t, k)
			time.Sleep(3*time.Hour - time.Second)
			stop()
			if s := k.Stats(); s.Taken != 3 || s.Failures != 0 || s.Last.Sub(began) != 2*time.Hour {
				t.Errorf("got %+v, want 3 backups, the last one 2 hours after %s", s, began)
			}
			time.Sleep(time.Second)
		}
	})
}

// Without an interval the keeper only finds the last backup.
func TestNotRegular(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, f := newMemory(), folder{t.TempDir()}
		taken, err := keeper(t, b, f, Config{}).Backup(t.Context(), "")
		if err != nil {
			t.Fatal(err)
		}
		k := keeper(t, b, f, Config{})
		stop := running(t, k)
		time.Sleep(24 * time.Hour)
		stop()
		if s := k.Stats(); s.Taken != 0 || !s.Last.Equal(taken.BeganAt) {
			t.Errorf("got %+v, want the last backup at %s", s, taken.BeganAt)
		}
	})
}

// A deaf bucket never answers a list while it hangs.
type deaf struct {
	*memory
	hangs atomic.Bool
}

func (d *deaf) List(ctx context.Context, prefix string) iter.Seq2[backend.Object, error] {
	if !d.hangs.Load() {
		return d.memory.List(ctx, prefix)
	}
	return func(yield func(backend.Object, error) bool) {
		<-ctx.Done()
		yield(backend.Object{}, ctx.Err())
	}
}

// A list that is never answered ends, and later backups are taken.
func TestListsEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, f := &deaf{memory: newMemory()}, folder{t.TempDir()}
		f.step(t, 1)
		k := keeper(t, b, f, Config{Every: 15 * time.Minute})
		stop := running(t, k)
		defer stop()
		time.Sleep(time.Minute)
		b.hangs.Store(true)
		time.Sleep(20 * time.Minute)
		b.hangs.Store(false)
		time.Sleep(5 * time.Minute)
		if s := k.Stats(); s.Failures == 0 || s.Taken != 2 {
			t.Errorf("got %+v, want failures and a second backup", s)
		}
	})
}

// After a restart damaged manifests do not count, and stop nothing. One of a newer version does.
func TestRegularBesideDamage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for damaged, due := range []time.Duration{45 * time.Minute, 30 * time.Minute, 0} {
			b, f := newMemory(), folder{t.TempDir()}
			f.step(t, 1)
			for range 2 {
				if _, err := keeper(t, b, f, Config{}).Backup(t.Context(), ""); err != nil {
					t.Fatal(err)
				}
				time.Sleep(15 * time.Minute)
			}
			found := listed(t, b)
			for _, l := range found[len(found)-damaged:] {
				buckettest.Put(t, b, "backups/"+l.ID, []byte("damaged"))
			}
			began := time.Now()
			k := keeper(t, b, f, Config{Every: time.Hour})
			stop := running(t, k)
			time.Sleep(55 * time.Minute)
			stop()
			if s := k.Stats(); s.Taken != 1 || s.Failures != 0 || s.Last.Sub(began) != due {
				t.Errorf("%d of two are damaged: got %+v, and a backup after %s, want one after %s", damaged, s, s.Last.Sub(began), due)
			}
			tomorrow := time.Now().Add(24 * time.Hour)
			id, text, err := manifest{Format: format + 1, Database: f.ID(), TakenAt: tomorrow}.encode()
			if err != nil {
				t.Fatal(err)
			}
			buckettest.Put(t, b, "backups/"+id, text)
			k = keeper(t, b, f, Config{Every: time.Hour})
			stop = running(t, k)
			time.Sleep(3 * time.Hour)
			stop()
			if s := k.Stats(); s.Taken != 0 || s.Failures < 100 {
				t.Errorf("beside a backup of a newer version: got %+v, want failures only", s)
			}
		}
	})
}

// A failure is tried again within a minute, and counted.
func TestRegularFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, f := newMemory(), folder{t.TempDir()}
		f.step(t, 1)
		b.before = func(int) (error, bool) { return errors.New("no route to the bucket"), false }
		k := keeper(t, b, f, Config{Every: 15 * time.Minute})
		stop := running(t, k)
		defer stop()
		time.Sleep(10*time.Minute + time.Second)
		if s := k.Stats(); s.Failures != 11 || s.Taken != 0 || !s.Last.IsZero() {
			t.Errorf("got %+v, want a failure a minute", s)
		}
		b.mu.Lock()
		b.before = nil
		b.mu.Unlock()
		time.Sleep(time.Minute)
		if s := k.Stats(); s.Taken != 1 || s.Last.IsZero() {
			t.Errorf("got %+v, want a backup", s)
		}
	})
}

// A halting bucket takes nothing for the root while it halts.
type halting struct {
	*memory
	halts atomic.Bool
}

func (h *halting) Put(ctx context.Context, name string, from io.Reader) error {
	if h.halts.Load() && !strings.HasPrefix(name, "before-repair/") {
		return errDrawn
	}
	return h.memory.Put(ctx, name, from)
}

// Backups that somebody asks for do not delay regular ones and the removal of old ones. One to another path hides no failure.
func TestAskedBackupsDoNotDelay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, f := &halting{memory: newMemory()}, folder{t.TempDir()}
		f.step(t, 1)
		k := keeper(t, b, f, Config{Every: time.Hour, Keep: 2 * time.Hour})
		stop := running(t, k)
		defer stop()
		ask := func(to string) {
			if _, err := k.Backup(t.Context(), to); err != nil {
				t.Errorf("%q: %v", to, err)
			}
		}
		for range 60 {
			time.Sleep(7 * time.Minute)
			ask("")
			if age := time.Since(k.Stats().Last); age != 0 {
				t.Fatalf("the last backup of the root is %s old, right after one", age)
			}
		}
		if age := time.Since(listed(t, b)[0].TakenAt); age > 3*time.Hour {
			t.Errorf("after 7 hours a backup is %s old, want 3 hours at most", age)
		}
		b.halts.Store(true)
		time.Sleep(2*time.Hour + 30*time.Second) // between two tries
		ask("before-repair")
		before := k.Stats()
		if age := time.Since(before.Last); age < 2*time.Hour {
			t.Errorf("after a backup to another path the last one of the root is %s old, want 2 hours", age)
		}
		time.Sleep(10 * time.Minute)
		if n := k.Stats().Failures - before.Failures; n != 10 {
			t.Errorf("got %d failures in 10 minutes, want one each minute", n)
		}
		b.halts.Store(false)
		time.Sleep(2 * time.Minute)
		if age := time.Since(k.Stats().Last); age > 2*time.Minute {
			t.Errorf("after the repair the last backup is %s old", age)
		}
	})
}

// Backups older than --backup-keep go, with the files that nobody needs, and all others can be restored.
func TestRegularRemovesOld(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, f := newMemory(), folder{t.TempDir()}
		k := keeper(t, b, f, Config{Every: time.Hour, Keep: 5 * time.Hour})
		if _, err := k.Backup(t.Context(), "below"); err != nil {
			t.Fatal(err)
		}
		stop := running(t, k)
		for n := range 30 {
			f.step(t, n)
			time.Sleep(time.Hour)
			synctest.Wait() // for the backup of this moment, which removes an old one
			for _, l := range listed(t, b) {
				if _, err := restored(t, b, l.TakenAt); err != nil {
					t.Errorf("hour %d: %v", n, err)
				}
			}
		}
		stop()
		found, now := listed(t, b), time.Now()
		if len(found) != 7 || found[0].Target != "below" { // six of the last five hours
			t.Errorf("got %d backups from %+v, want 7", len(found), found[0])
		}
		for _, l := range found[1:] {
			if age := now.Sub(l.TakenAt); age > 6*time.Hour+time.Minute {
				t.Errorf("%s is %s old", l.ID, age)
			}
		}
		if n := len(buckettest.List(t, b, "files/")); n > 30 { // and not 60 of all
			t.Errorf("%d files are left", n)
		}
		time.Sleep(30 * 24 * time.Hour)
		k = keeper(t, b, f, Config{Keep: time.Hour})
		if _, err := k.take(t.Context(), "", k.removeOld); err != nil {
			t.Fatal(err)
		}
		if n := len(buckettest.List(t, b, "backups/")); n != 1 {
			t.Errorf("%d backups are left, want the newest", n)
		}
	})
}

// A stuck store needs for a copy as long as it may take.
type stuck struct{ folder }

func (stuck) Checkpoint(ctx context.Context, _ func(context.Context, string) error) error {
	<-ctx.Done()
	return ctx.Err()
}

// The mark of a backup that takes long is renewed. If that does not succeed, the backup ends before others
// take its mark for that of a dead process.
func TestLongBackup(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, f := newMemory(), folder{t.TempDir()}
		k := keeper(t, b, f, Config{})
		work := func(how string, want bool) {
			began := time.Now()
			_, err := k.take(t.Context(), "", func(ctx context.Context, _ target, _ time.Time) {
				select {
				case <-ctx.Done():
				case <-time.After(time.Hour):
				}
				if lasted := time.Since(began) >= time.Hour; lasted != want {
					t.Errorf("%s: it lasted %s", how, time.Since(began))
				}
				b.mu.Lock()
				defer b.mu.Unlock()
				if mark := b.objects["busy/"+k.owner]; want && time.Since(mark.at) > renewEvery {
					t.Errorf("%s: the mark is %s old", how, time.Since(mark.at))
				}
			})
			if err != nil {
				t.Errorf("%s: %v", how, err)
			}
		}
		work("renewed", true)
		calls := b.calls
		b.before = func(n int) (error, bool) {
			if n > calls+7 { // mark, its list, backups twice, files twice, manifest
				return errDrawn, false
			}
			return nil, false
		}
		work("not renewed", false)
		calls = b.calls
		b.before = func(n int) (error, bool) {
			if n == calls+8 { // the first renewal
				time.Sleep(giveUpAfter + time.Minute)
			}
			return nil, false
		}
		work("suspended", false)
		k = keeper(t, b, stuck{f}, Config{})
		calls = b.calls
		b.before = func(n int) (error, bool) {
			if n > calls+3 { // mark, its list, backups
				return errDrawn, false
			}
			return nil, false
		}
		if _, err := k.Backup(t.Context(), ""); err == nil || !strings.Contains(err.Error(), "was not renewed") || k.Stats().Failures != 1 {
			t.Errorf("a lost mark: got %v and %+v, want one failure", err, k.Stats())
		}
		b.before = nil
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Minute, cancel)
		if _, err := k.Backup(ctx, ""); !errors.Is(err, context.Canceled) || k.Stats().Failures != 1 {
			t.Errorf("the caller has gone: got %v and %+v, want no other failure", err, k.Stats())
		}
	})
}
