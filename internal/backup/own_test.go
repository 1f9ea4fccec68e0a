package backup

import (
	"errors"
	"maps"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// An other is a store of another database.
type other struct{ folder }

func (other) ID() string { return "other" }

// Two databases with one root: the second writes and removes nothing, however it takes backups, and the first goes on.
func TestRootOfAnotherDatabase(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, f, o := newMemory(), folder{t.TempDir()}, other{folder{t.TempDir()}}
		f.step(t, 1)
		o.step(t, 2)
		first := keeper(t, b, f, Config{})
		if _, err := first.Backup(t.Context(), ""); err != nil {
			t.Fatal(err)
		}
		before := listed(t, b)
		for name, cfg := range map[string]Config{"asked": {}, "regular": {Every: time.Minute, Keep: time.Minute}} {
			second := keeper(t, b, o, cfg)
			for _, to := range []string{"", "below"} {
				if _, err := second.Backup(t.Context(), to); !errors.Is(err, ErrOther) || !strings.Contains(err.Error(), "the-database") {
					t.Errorf("%s, to %q: got %v, want ErrOther and the id", name, to, err)
				}
			}
			stop := running(t, second)
			time.Sleep(time.Hour)
			stop()
			if s := second.Stats(); s.Taken != 0 || s.Failures < 30 || !s.Last.IsZero() {
				t.Errorf("%s: got %+v, want failures and no backup", name, s)
			}
		}
		if after := listed(t, b); len(after) != 1 || after[0] != before[0] {
			t.Errorf("got %+v, want %+v", after, before)
		}
		if got, err := restored(t, b, time.Time{}); err != nil || !maps.Equal(got, f.files(t)) {
			t.Errorf("restored: got %v, %v", got, err)
		}
		if _, err := first.Backup(t.Context(), ""); err != nil {
			t.Errorf("the first database: %v", err)
		}
	})
}

// A root that loses its backups gets no new ones until they are back, or until a restart. It may be below a lost mount.
func TestRootIsGone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, f := newMemory(), folder{t.TempDir()}
		f.step(t, 1)
		has := func(objects map[string]object) map[string]object {
			b.mu.Lock()
			defer b.mu.Unlock()
			before := maps.Clone(b.objects)
			b.objects = maps.Clone(objects)
			return before
		}
		k := keeper(t, b, f, Config{Every: time.Hour})
		defer running(t, k)()
		time.Sleep(90 * time.Minute)
		before := has(map[string]object{})
		time.Sleep(time.Hour + 30*time.Second) // between two tries
		for _, to := range []string{"", "below"} {
			if _, err := k.Backup(t.Context(), to); !errors.Is(err, ErrGone) {
				t.Errorf("to %q: got %v, want ErrGone", to, err)
			}
		}
		if s := k.Stats(); s.Taken != 2 || s.Failures < 30 || len(listed(t, b)) > 0 {
			t.Errorf("got %+v and %d backups, want failures", s, len(listed(t, b)))
		}
		again := keeper(t, b, f, Config{})
		if _, err := again.Backup(t.Context(), ""); err != nil {
			t.Errorf("after a restart: %v", err)
		}
		has(before)
		time.Sleep(2 * time.Minute)
		if s := k.Stats(); s.Taken != 3 {
			t.Errorf("got %+v, want a backup when the others are back", s)
		}
	})
}

// Of two databases that begin with an empty root at the same moment, one gets it.
func TestRootOfTwoDatabases(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newMemory()
		stores := []Store{folder{t.TempDir()}, other{folder{t.TempDir()}}}
		for _, s := range stores {
			stop := running(t, keeper(t, b, s, Config{Every: time.Minute}))
			defer stop()
		}
		time.Sleep(time.Hour)
		found := listed(t, b)
		if len(found) < 30 {
			t.Fatalf("got %d backups in an hour", len(found))
		}
		for _, l := range found {
			if l.Database != found[0].Database {
				t.Fatalf("got a backup of %s beside those of %s", l.Database, found[0].Database)
			}
		}
	})
}

// A restore takes the database that was chosen, or the only one.
func TestRestoreChoosesADatabase(t *testing.T) {
	t.Parallel()
	b, f, o := newMemory(), folder{t.TempDir()}, other{folder{t.TempDir()}}
	var at []time.Time
	var ids []string
	for n, s := range []Store{f, o, f, o} {
		folder{s.Dir()}.step(t, n)
		taken, err := keeper(t, b, s, Config{}).Backup(t.Context(), "x/"+s.ID())
		if err != nil {
			t.Fatal(err)
		}
		at, ids = append(at, taken.TakenAt), append(ids, taken.ID)
	}
	for _, tc := range []struct {
		choice Choice
		want   int
		says   string
	}{
		{Choice{}, 0, "choose one with --database"},
		{Choice{At: at[0]}, 0, "choose one with --database"},
		{Choice{Database: "third"}, 0, "no backup of database third"},
		{Choice{Database: "other", At: at[0]}, 0, "no backup is that old"},
		{Choice{Database: f.ID()}, 2, ""},
		{Choice{Database: "other"}, 3, ""},
		{Choice{Database: "other", At: at[2]}, 1, ""},
	} {
		r, err := Restore(t.Context(), b, tc.choice, filepath.Join(t.TempDir(), "r"))
		if tc.says != "" {
			if err == nil || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("%+v: got %v, want an error with %q", tc.choice, err, tc.says)
			}
		} else if err != nil || r.ID != ids[tc.want] || r.Database != tc.choice.Database {
			t.Errorf("%+v: got %+v, %v, want backup %d", tc.choice, r, err, tc.want)
		}
	}
	for name, x := range maps.Clone(b.objects) {
		if strings.HasPrefix(name, "x/other/backups/") { // under the name of the first
			b.objects[strings.Replace(name, "-other-", "-the-database-", 1)] = x
			delete(b.objects, name)
		}
	}
	if _, err := Restore(t.Context(), b, Choice{Database: f.ID()}, filepath.Join(t.TempDir(), "r")); err == nil || !strings.Contains(err.Error(), "names database other") {
		t.Errorf("a manifest with another name: got %v", err)
	}
}
