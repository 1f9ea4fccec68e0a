package backup

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"log/slog"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/countmill/countmill/backend"
	"github.com/countmill/countmill/backend/buckettest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A memory is a bucket in memory. before is called before each call, with the count of calls; its error fails the
// call, after it was done if after is set.
type memory struct {
	mu      sync.Mutex
	objects map[string]object
	calls   int
	before  func(call int) (err error, after bool)
}

type object struct {
	data []byte
	at   time.Time
}

func newMemory() *memory { return &memory{objects: make(map[string]object)} }

var _ backend.Bucket = (*memory)(nil)

// do does the call, unless it fails before.
func (m *memory) do(ctx context.Context, call func() error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	m.calls++
	var fault error
	after := false
	if m.before != nil {
		fault, after = m.before(m.calls)
	}
	if fault != nil && !after {
		return fault
	}
	return errors.Join(call(), fault)
}

func (m *memory) Put(ctx context.Context, name string, from io.Reader) error {
	data, err := io.ReadAll(from)
	if err != nil {
		return err
	}
	return m.do(ctx, func() error { m.objects[name] = object{data, time.Now()}; return nil })
}

func (m *memory) Get(ctx context.Context, name string) (r io.ReadCloser, err error) {
	err = m.do(ctx, func() error {
		o, ok := m.objects[name]
		if !ok {
			return fmt.Errorf("%s: %w", name, fs.ErrNotExist)
		}
		r = io.NopCloser(bytes.NewReader(o.data))
		return nil
	})
	return r, err
}

func (m *memory) List(ctx context.Context, prefix string) iter.Seq2[backend.Object, error] {
	return func(yield func(backend.Object, error) bool) {
		var found []backend.Object
		err := m.do(ctx, func() error {
			for name, o := range m.objects {
				if strings.HasPrefix(name, prefix) {
					found = append(found, backend.Object{Name: name, Size: int64(len(o.data)), ModTime: o.at})
				}
			}
			return nil
		})
		if err != nil {
			yield(backend.Object{}, err)
			return
		}
		for _, o := range found {
			if !yield(o, nil) {
				return
			}
		}
	}
}

func (m *memory) Delete(ctx context.Context, name string) error {
	return m.do(ctx, func() error { delete(m.objects, name); return nil })
}

func (m *memory) Close() error { return nil }

func TestMemory(t *testing.T) {
	t.Parallel()
	buckettest.Run(t, func(*testing.T) backend.Bucket { return newMemory() })
}

// A folder is a store: its files are its state.
type folder struct{ dir string }

func (f folder) Dir() string { return f.dir }
func (f folder) ID() string  { return "the-database" }
func (f folder) Checkpoint(ctx context.Context, use func(context.Context, string) error) error {
	return use(ctx, f.dir)
}

func (f folder) write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(f.dir, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func (f folder) files(t *testing.T) map[string]string { return filesOf(t, f.dir) }

func filesOf(t *testing.T, dir string) map[string]string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	found := make(map[string]string)
	for _, e := range entries {
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		found[e.Name()] = string(text)
	}
	return found
}

// A step is a folder with a state that changes as a store does: tables come and go, and never change.
func (f folder) step(t *testing.T, n int) {
	t.Helper()
	f.write(t, fmt.Sprintf("%06d.sst", n), strings.Repeat(fmt.Sprint(n), 100))
	_ = os.Remove(filepath.Join(f.dir, fmt.Sprintf("%06d.sst", n-3))) // the first ones do not exist
	f.write(t, "MANIFEST-000001", fmt.Sprint("state ", n))
}

func keeper(t *testing.T, b backend.Bucket, s Store, cfg Config) *Keeper {
	t.Helper()
	cfg.Root = &url.URL{Scheme: "mem", Host: "bucket", Path: "/root"}
	cfg.Open = func(context.Context, bool) (backend.Bucket, error) { return b, nil }
	cfg.Rate = 1 << 30
	cfg.Logger = slog.New(slog.DiscardHandler)
	k, err := New(s, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func restored(t *testing.T, b backend.Bucket, at time.Time) (map[string]string, error) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "made", "restored")
	if _, err := Restore(t.Context(), b, Choice{At: at}, dir); err != nil {
		if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("a restore that failed left %s: %v", dir, err)
		}
		return nil, err
	}
	return filesOf(t, dir), nil
}

func listed(t *testing.T, b backend.Bucket) []Listed {
	t.Helper()
	found, err := List(t.Context(), b)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// Each backup has the state of its time, and sends the new files.
func TestIncremental(t *testing.T) {
	t.Parallel()
	b, f := newMemory(), folder{t.TempDir()}
	k := keeper(t, b, f, Config{})
	var states []map[string]string
	var taken []Backup
	for n := range 6 {
		f.step(t, n)
		states = append(states, f.files(t))
		at, err := k.Backup(t.Context(), "")
		if err != nil {
			t.Fatal(err)
		}
		taken = append(taken, at)
		if want := int64(100 + len("state 0")); at.Sent != want || at.Bytes < at.Sent || at.URL != "mem://bucket/root" {
			t.Errorf("backup %d: got %+v, want %d bytes sent", n, at, want)
		}
	}
	again, err := k.Backup(t.Context(), "")
	if err != nil || again.Sent != 0 {
		t.Errorf("the same again: got %+v, %v, want nothing sent", again, err)
	}
	other, err := keeper(t, b, f, Config{}).Backup(t.Context(), "") // of another process
	if err != nil || other.Sent != 0 {
		t.Errorf("the same by a new process: got %+v, %v, want nothing sent", other, err)
	}
	for n, at := range taken {
		got, err := restored(t, b, at.TakenAt)
		if err != nil || !maps.Equal(got, states[n]) {
			t.Errorf("at backup %d: got %v, %v, want %v", n, got, err, states[n])
		}
	}
	if _, err := restored(t, b, taken[0].TakenAt.Add(-time.Microsecond)); err == nil || !strings.Contains(err.Error(), "no backup is that old") {
		t.Errorf("before the first: got %v", err)
	}
	if left := buckettest.List(t, b, "busy/"); len(left) > 0 {
		t.Errorf("marks are left: %v", left)
	}
	if s := k.Stats(); s.Taken != 7 || s.Failures != 0 || s.Sent != 6*107 || !s.Last.Equal(again.BeganAt) {
		t.Errorf("got %+v", s)
	}
}

// The newest backup below the URL counts, whatever target it is of.
func TestTargets(t *testing.T) {
	t.Parallel()
	b, f := newMemory(), folder{t.TempDir()}
	k := keeper(t, b, f, Config{})
	for n, to := range []string{"", "a/b", "mem://bucket/root/.c"} {
		f.step(t, n)
		if _, err := k.Backup(t.Context(), to); err != nil {
			t.Fatal(err)
		}
		got, err := restored(t, b, time.Time{})
		if err != nil || !maps.Equal(got, f.files(t)) {
			t.Errorf("%q: got %v, %v, want %v", to, got, err, f.files(t))
		}
	}
	var targets []string
	for _, l := range listed(t, b) {
		targets = append(targets, l.Target)
	}
	if want := []string{"", "a/b", ".c"}; !slices.Equal(targets, want) {
		t.Errorf("got targets %q, want %q", targets, want)
	}
}

var errDrawn = errors.New("drawn")

// A backup, and the removal of old ones, may end at any call of the bucket, and the answer to that call may be
// lost: every backup in the list is whole, and the next backup works and removes the leftovers.
func TestEndsAnywhere(t *testing.T) {
	t.Parallel()
	for _, after := range []bool{false, true} {
		for dead := range []int{0, 1} { // from then on every call fails, or only one
			for call := 1; ; call++ {
				if !endsAt(t, call, after, dead == 0) {
					if call < 20 {
						t.Errorf("a backup makes %d calls only", call)
					}
					break
				}
			}
		}
	}
}

// endsAt reports whether the backup made so many calls.
func endsAt(t *testing.T, call int, after, dead bool) bool {
	t.Helper()
	what := fmt.Sprintf("call %d, done: %t, dead: %t", call, after, dead)
	b, f := newMemory(), folder{t.TempDir()}
	states := make(map[string]bool)
	take := func(n int, keep time.Duration) error {
		f.step(t, n)
		states[fmt.Sprint(f.files(t))] = true
		k := keeper(t, b, f, Config{Keep: keep}) // the process of the one before is dead
		_, err := k.take(t.Context(), "", k.removeOld)
		return err
	}
	for n := range 4 {
		if err := take(n, 0); err != nil {
			t.Fatal(err)
		}
	}
	for name, o := range b.objects {
		o.at = o.at.Add(-time.Hour)
		b.objects[name] = o
	}
	b.calls = 0
	b.before = func(n int) (error, bool) {
		if n == call || dead && n > call {
			return errDrawn, after && n == call
		}
		return nil, false
	}
	err := take(4, time.Minute)
	hit := b.calls >= call
	b.before = nil
	whole := func() int {
		found := listed(t, b)
		for _, l := range found {
			if got, err := restored(t, b, l.TakenAt); err != nil || !states[fmt.Sprint(got)] {
				t.Errorf("%s: backup %s is listed, and restores %v, %v", what, l.ID, got, err)
			}
		}
		return len(found)
	}
	if n := whole(); n < 1 || err == nil && !hit && n != 1 {
		t.Errorf("%s: %d backups are left after %v", what, n, err)
	}
	if err := take(5, time.Minute); err != nil {
		t.Errorf("%s: the next backup: %v", what, err)
	}
	whole()
	if n := len(buckettest.List(t, b, "files/")); n > 8 { // of the last two
		t.Errorf("%s: %d files are left", what, n)
	}
	return hit
}

// Damage of any object is found when it is restored, and nothing is written.
func TestDamageIsFound(t *testing.T) {
	t.Parallel()
	b, f := newMemory(), folder{t.TempDir()}
	f.step(t, 1)
	if _, err := keeper(t, b, f, Config{}).Backup(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	whole := maps.Clone(b.objects)
	for name, o := range whole {
		for what, data := range map[string][]byte{
			"shorter": o.data[:len(o.data)-1], "longer": append(slices.Clone(o.data), 'x'), "changed": append([]byte{o.data[0] ^ 1}, o.data[1:]...), "empty": nil,
		} {
			b.objects = maps.Clone(whole)
			b.objects[name] = object{data, o.at}
			if got, err := restored(t, b, time.Time{}); err == nil || !strings.Contains(err.Error(), "--at ") {
				t.Errorf("%s is %s: got %v, %v, want an error that names the way to an older backup", name, what, got, err)
			}
		}
		b.objects = maps.Clone(whole)
		delete(b.objects, name)
		if got, err := restored(t, b, time.Time{}); err == nil || strings.HasPrefix(name, "files/") && !strings.Contains(err.Error(), name) {
			t.Errorf("%s is gone: got %v, %v, want an error that names it", name, got, err)
		}
	}
	for call := 1; call <= 4; call++ { // the list, the manifest and two files
		b.objects, b.calls = maps.Clone(whole), 0
		b.before = func(n int) (error, bool) {
			if n == call {
				return errDrawn, false
			}
			return nil, false
		}
		if _, err := restored(t, b, time.Time{}); !errors.Is(err, errDrawn) || strings.Contains(err.Error(), "--at ") {
			t.Errorf("call %d fails: got %v, want its error, and no advice to lose data", call, err)
		}
		b.before = nil
	}
	for name, o := range whole { // a file that is missing or has another size is sent again
		for what, damage := range map[string]func(){
			"shorter": func() { b.objects[name] = object{o.data[1:], o.at} }, "gone": func() { delete(b.objects, name) },
		} {
			if b.objects = maps.Clone(whole); strings.HasPrefix(name, "files/") {
				damage()
			}
			if _, err := keeper(t, b, f, Config{}).Backup(t.Context(), ""); err != nil {
				t.Fatal(err)
			}
			if _, err := restored(t, b, time.Time{}); err != nil {
				t.Errorf("%s was %s before the next backup: %v", name, what, err)
			}
		}
	}
}

// A process that was suspended for so long that another one removed its files lists no backup of them.
func TestSuspended(t *testing.T) {
	t.Parallel()
	b, f := newMemory(), folder{t.TempDir()}
	f.step(t, 1)
	removed := 0
	b.before = func(int) (error, bool) {
		var sent []string
		for name := range b.objects {
			if strings.HasPrefix(name, "files/") {
				sent = append(sent, name)
			}
		}
		if len(sent) == 2 && removed == 0 { // the upload is complete
			removed++
			delete(b.objects, sent[0])
		}
		return nil, false
	}
	k := keeper(t, b, f, Config{})
	if _, err := k.Backup(t.Context(), ""); removed != 1 || err == nil || !strings.Contains(err.Error(), "was removed or replaced") {
		t.Errorf("got %v after %d files were removed", err, removed)
	}
	if found := listed(t, b); len(found) > 0 {
		t.Errorf("got backups %v", found)
	}
	if _, err := k.Backup(t.Context(), ""); err != nil {
		t.Errorf("the next backup: %v", err)
	}
	if got, err := restored(t, b, time.Time{}); err != nil || !maps.Equal(got, f.files(t)) {
		t.Errorf("restored: got %v, %v", got, err)
	}
}

// A backup that takes longer than its deadlines is done after some, also if the checksums alone take longer. The error
// is the deadline.
func TestDeadlines(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, f := newMemory(), folder{t.TempDir()}
		for n := range 50 {
			f.write(t, fmt.Sprintf("%06d.sst", n), strings.Repeat(fmt.Sprintf("%02d", n), 50_000))
		}
		k := keeper(t, b, f, Config{})
		k.limit = newLimit(1 << 20)
		late := int64(0)
		for {
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			_, err := k.Backup(ctx, "")
			ended := ctx.Err()
			cancel()
			if err == nil {
				break
			}
			if !errors.Is(err, context.DeadlineExceeded) || ended == nil {
				t.Errorf("got %v, and the caller's ctx has %v, want the deadline", err, ended)
			}
			if late++; late == 30 {
				t.Fatal("there is no backup after 30 times 2 s, and a whole one takes 20 s at most")
			}
		}
		if got, err := restored(t, b, time.Time{}); err != nil || !maps.Equal(got, f.files(t)) {
			t.Errorf("restored: %v", err)
		}
		if s := k.Stats(); late < 3 || s.Failures != late || len(k.sums.of) != 50 {
			t.Errorf("got %+v and %d checksums after %d deadlines", s, len(k.sums.of), late)
		}
		if err := os.Remove(filepath.Join(f.dir, "000000.sst")); err != nil {
			t.Fatal(err)
		}
		if _, err := k.Backup(t.Context(), ""); err != nil || len(k.sums.of) != 49 {
			t.Errorf("got %v and %d checksums, want those of the 49 tables that are left", err, len(k.sums.of))
		}
	})
}

// If a table changes on the disk between its checksum and its upload, the backup fails.
func TestFileChangesMeanwhile(t *testing.T) {
	t.Parallel()
	b, f := newMemory(), folder{t.TempDir()}
	f.step(t, 1)
	k := keeper(t, b, f, Config{})
	if _, err := k.Backup(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	maps.DeleteFunc(b.objects, func(name string, _ object) bool { return strings.HasPrefix(name, "files/") })
	f.write(t, "000001.sst", strings.Repeat("2", 100))
	if _, err := k.Backup(t.Context(), ""); err == nil || !strings.Contains(err.Error(), "000001.sst has other content") {
		t.Errorf("got %v", err)
	}
	if found := listed(t, b); len(found) != 1 {
		t.Errorf("got backups %v, want the first", found)
	}
}

// Nobody writes to a target while another process does. A process that died is waited for.
func TestOneAtATime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, f := newMemory(), folder{t.TempDir()}
		f.step(t, 1)
		first, second := keeper(t, b, f, Config{}), keeper(t, b, folder{f.dir + "/."}, Config{})
		second.owner = "another"
		var nested error
		if _, err := first.take(t.Context(), "", func(ctx context.Context, _ target, _ time.Time) {
			_, nested = second.Backup(ctx, "")
			_, other := second.Backup(ctx, "elsewhere")
			began := time.Now()
			_, own := first.Backup(ctx, "elsewhere")
			if took := time.Since(began); took != patience {
				t.Errorf("a backup waited %s for another of its process, want %s", took, patience)
			}
			if other != nil || !errors.Is(own, ErrBusy) {
				t.Errorf("to another target: got %v from another process, and %v from the same, want nil and ErrBusy", other, own)
			}
		}); err != nil || !errors.Is(nested, ErrBusy) {
			t.Errorf("got %v and at the same time %v, want nil and ErrBusy", err, nested)
		}
		for age, want := range map[time.Duration]error{time.Minute: ErrBusy, markLife - time.Minute: ErrBusy, markLife + time.Minute: nil} {
			b.objects["busy/dead"] = object{nil, time.Now().Add(-age)}
			if _, err := second.Backup(t.Context(), ""); !errors.Is(err, want) {
				t.Errorf("beside a mark %s old: got %v, want %v", age, err, want)
			}
		}
		delete(b.objects, "busy/dead")
		buckettest.Put(t, b, "busy/"+first.owner, nil)
		if _, err := first.Backup(t.Context(), ""); err != nil {
			t.Errorf("beside the mark of its own dead process: got %v", err)
		}
	})
}

// The first regular backup must not refuse a backup that a person asks for at the same moment.
func TestABackupWaitsForAShortOne(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, f := newMemory(), folder{t.TempDir()}
		f.step(t, 1)
		k := keeper(t, b, f, Config{})
		go func() {
			_, _ = k.take(t.Context(), "", func(context.Context, target, time.Time) { time.Sleep(patience - time.Second) })
		}()
		synctest.Wait()
		if _, err := k.Backup(t.Context(), "other"); err != nil {
			t.Errorf("got %v after %s, want a backup", err, patience-time.Second)
		}
		if s := k.Stats(); s.Taken != 2 || s.Failures != 0 {
			t.Errorf("got %+v, want two backups", s)
		}
	})
}

// Only objects of backups are removed: a bucket may have others.
func TestSweepLeavesOthers(t *testing.T) {
	t.Parallel()
	b, f := newMemory(), folder{t.TempDir()}
	sum := strings.Repeat("a", 64)
	foreign := []string{"backups/thesis.txt", "files/thesis.txt", "files/a/b", "x/files/" + sum, "thesis.txt"}
	ours := []string{"files/" + sum, "files/" + sum + ".partial-abcd2345", "backups/20200101T000000.000000Z-x-0123456789abcdef.partial-abcd2345"}
	for _, name := range slices.Concat(foreign, ours) {
		buckettest.Put(t, b, name, []byte("x"))
	}
	f.step(t, 1)
	k := keeper(t, b, f, Config{Keep: time.Hour})
	if _, err := k.take(t.Context(), "", k.removeOld); err != nil {
		t.Fatal(err)
	}
	left := buckettest.List(t, b, "")
	for _, name := range foreign {
		if _, ok := left[name]; !ok {
			t.Errorf("%s was removed", name)
		}
	}
	for _, name := range ours {
		if _, ok := left[name]; ok {
			t.Errorf("%s was not removed", name)
		}
	}
	buckettest.Put(t, b, "backups/20200101T000000.000000Z-the-database-0123456789abcdef", []byte("damaged"))
	buckettest.Put(t, b, "files/"+sum, []byte("x"))
	k = keeper(t, b, f, Config{Keep: time.Hour})
	if _, err := k.take(t.Context(), "", k.removeOld); err != nil {
		t.Fatal(err)
	}
	if _, ok := buckettest.List(t, b, "")["files/"+sum]; !ok {
		t.Error("a file was removed although a manifest cannot be read")
	}
}

// The newest backup has the last name also when the clock goes back.
func TestClockGoesBack(t *testing.T) {
	t.Parallel()
	b, f := newMemory(), folder{t.TempDir()}
	f.step(t, 1)
	tomorrow := time.Now().Add(24 * time.Hour).Truncate(time.Microsecond)
	m := manifest{Format: format, Database: f.ID(), BeganAt: tomorrow, TakenAt: tomorrow}
	id, text, err := m.encode()
	if err != nil {
		t.Fatal(err)
	}
	buckettest.Put(t, b, "backups/"+id, text)
	got, err := keeper(t, b, f, Config{}).Backup(t.Context(), "")
	if err != nil || !got.TakenAt.Equal(tomorrow.Add(time.Microsecond)) {
		t.Errorf("got %+v, %v, want a time after %s", got, err, tomorrow)
	}
	if files, err := restored(t, b, time.Time{}); err != nil || !maps.Equal(files, f.files(t)) {
		t.Errorf("restored: got %v, %v", files, err)
	}
}

// Manifests of newer versions, and names that lead elsewhere, are refused.
func TestManifestIsChecked(t *testing.T) {
	t.Parallel()
	sum := strings.Repeat("0", 64)
	for says, m := range map[string]manifest{
		"has format 2":            {Format: 2},
		`names a file "../a"`:     {Format: 1, Files: []file{{"../a", 1, sum}}},
		`names a file "a/b"`:      {Format: 1, Files: []file{{"a/b", 1, sum}}},
		`names a file ".."`:       {Format: 1, Files: []file{{"..", 1, sum}}},
		`names a file ""`:         {Format: 1, Files: []file{{"", 1, sum}}},
		`names a file "a\\b"`:     {Format: 1, Files: []file{{`a\b`, 1, sum}}},
		`SHA-256 "../../secrets"`: {Format: 1, Files: []file{{"a", 1, "../../secrets"}}},
	} {
		b := newMemory()
		m.Database = "x"
		id, text, err := m.encode()
		if err != nil {
			t.Fatal(err)
		}
		buckettest.Put(t, b, "backups/"+id, text)
		if _, err := restored(t, b, time.Time{}); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("got %v, want an error with %q", err, says)
		}
	}
}
