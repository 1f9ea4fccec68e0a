package pebble

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	pebbledb "github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/wire"
)

var damageCases = flag.Int("damages", 0, "damaged directories; 0 for as many as fit into a second")

// The test damages copies of a data directory: it flips a byte, zeroes a block, cuts a file or removes
// it. After that all totals are right, or an error names the directory or the file. The store is never
// wrong without an error, with one exception: Pebble takes damage to folds since the last commit count,
// of a process that was killed, for a loss of power.
func TestDamage(t *testing.T) {
	t.Parallel()
	seed, until := *powerSeed, time.Now().Add(time.Second)
	if seed == 0 {
		seed = rand.Uint64N(1 << 40)
	}
	images := damageImages(t, rand.New(rand.NewPCG(seed, 0)))
	tally := make(map[string]int)
	n := 0
	for ; n < *damageCases || *damageCases == 0 && time.Now().Before(until); n++ {
		random := rand.New(rand.NewPCG(seed, uint64(n)+1))
		image := images[random.IntN(len(images))]
		what, verdict, err := image.damage(t.Context(), random)
		if err != nil {
			t.Errorf("case %d of seed %d: %s, %s: %v", n, seed, image.name, what, err)
		}
		tally[image.name+", "+what[:strings.Index(what, " of ")]+": "+verdict]++
	}
	t.Logf("%d cases from seed %d", n, seed)
	for _, what := range slices.Sorted(maps.Keys(tally)) {
		t.Logf("%6d  %s", tally[what], what)
	}
}

// Three commits are gone, and later ones are not: a damaged manifest can do that. The directory is refused. Without
// its commit count it opens with the rest, and the next opening finds nothing wrong.
func TestCommitsLostBeforeOthers(t *testing.T) {
	t.Parallel()
	cfg := damageConfig(vfs.NewMem())
	open := func() (err error) {
		s, err := Open(cfg)
		if err != nil {
			return err
		}
		defer s.Close()
		for range 5 {
			fold(t, s, nil, "a", 1)
		}
		n, last, err := getCommits(s.db)
		if n < 5 || n != last {
			t.Errorf("%d commits, the last is number %d: %v", n, last, err)
		}
		return err
	}
	if err := open(); err != nil {
		t.Fatal(err)
	}
	db, err := pebbledb.Open(cfg.Dir, &pebbledb.Options{FS: cfg.FS, Merger: merger, FormatMajorVersion: pebbledb.FormatValueSeparation})
	if err != nil {
		t.Fatal(err)
	}
	n, _, err := getCommits(db)
	if err == nil {
		err = db.Set(commitsKey, commitsRow(n, n+3), pebbledb.Sync)
	}
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	before := contents(t, cfg)
	if err := open(); err == nil || !strings.Contains(err.Error(), "3 of ") || !strings.Contains(err.Error(), "later ones are not: restore a backup") {
		t.Fatalf("got error %v", err)
	}
	if !maps.Equal(before, contents(t, cfg)) {
		t.Error("the refused directory was changed")
	}
	if err := cfg.FS.Remove("/data/" + commitCountFile); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := open(); err != nil {
			t.Fatal(err)
		}
	}
}

// A directory that lost the marker of its manifest is refused, with and without its commit count, and keeps its tables.
func TestWithoutTheMarkerOfTheManifest(t *testing.T) {
	t.Parallel()
	cfg := damageConfig(vfs.NewMem())
	for range 2 { // the second opening makes a table
		s, err := Open(cfg)
		if err != nil {
			t.Fatal(err)
		}
		fold(t, s, nil, "a", 1)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	for _, lost := range []string{"marker.manifest.", commitCountFile} {
		for name := range contents(t, cfg) {
			if strings.HasPrefix(name, lost) {
				if err := cfg.FS.Remove(path.Join(cfg.Dir, name)); err != nil {
					t.Fatal(err)
				}
			}
		}
		before := contents(t, cfg)
		if _, err := Open(cfg); err == nil || !strings.Contains(err.Error(), "marker.manifest.* is missing: put it back, or restore a backup") {
			t.Errorf("without %s: got error %v", lost, err)
		}
		if !maps.Equal(before, contents(t, cfg)) {
			t.Errorf("without %s: the refused directory was changed", lost)
		}
	}
}

// contents are the files of a directory.
func contents(t *testing.T, cfg Config) map[string]string {
	t.Helper()
	names, err := cfg.FS.List(cfg.Dir)
	if err != nil {
		t.Fatal(err)
	}
	all := make(map[string]string)
	for _, name := range names {
		f, err := cfg.FS.Open(path.Join(cfg.Dir, name))
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(f)
		if err := errors.Join(err, f.Close()); err != nil {
			t.Fatal(err)
		}
		all[name] = string(data)
	}
	return all
}

// An image is a data directory, and the data that it must contain.
type image struct {
	name      string
	files     *vfs.MemFS
	id        string
	totals    map[string]int64
	uncounted map[string]int64 // the part of totals since the last commit count
	marks     []wire.PartID
	letter    string
}

// damageImages returns three directories: of a store that was closed, of a process that was killed
// right after a commit count, and of one that was killed after further folds.
func damageImages(t *testing.T, random *rand.Rand) []*image {
	t.Helper()
	var images []*image
	for _, name := range []string{"closed", "killed when counted", "killed uncounted"} {
		i := &image{name: name, files: vfs.NewCrashableMem(), totals: map[string]int64{}, uncounted: map[string]int64{}, letter: strings.Repeat("x", 3000)}
		for range 2 { // the first process leaves old files
			i.fill(t, random)
		}
		images = append(images, i)
	}
	return images
}

// fill runs one process on the image, and ends it in the image's way.
func (i *image) fill(t *testing.T, random *rand.Rand) {
	t.Helper()
	s, err := Open(damageConfig(i.files))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	i.id = s.ID()
	for range 400 {
		i.fold(t, s, random, i.totals)
	}
	if err := s.PutDeadLetters(t.Context(), []store.DeadLetter{{Key: "letter", Payload: []byte(i.letter)}}); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "compactions end", func() bool { return s.db.Metrics().Compact.NumInProgress == 0 })
	if i.name == "closed" {
		return
	}
	if err := s.keepCommitCount(); err != nil {
		t.Fatal(err)
	}
	if i.name == "killed uncounted" {
		clear(i.uncounted)
		for range 20 {
			i.fold(t, s, random, i.totals, i.uncounted)
		}
	}
	i.files = i.files.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: random}) // a kill: the operating system keeps all writes
}

func damageConfig(files vfs.FS) Config {
	return Config{Dir: "/data", FS: files, Cache: 1 << 20, memTable: 64 << 10, Exit: func(int) { panic("the process ends") }}
}

func (i *image) fold(t *testing.T, s *Store, random *rand.Rand, into ...map[string]int64) {
	t.Helper()
	counter, delta := fmt.Sprintf("counter-%d-%s", random.IntN(300), strings.Repeat("y", 100)), 1+random.Int64N(100)
	m := marker(time.Now())
	fold(t, s, m, counter, delta)
	for _, totals := range into {
		totals[counter] += delta
	}
	if len(into) == 1 {
		i.marks = append(i.marks, m[0].ID)
	}
}

// damage damages a copy once, and judges the answers of opening and reading it.
func (i *image) damage(ctx context.Context, random *rand.Rand) (what, verdict string, err error) {
	files := vfs.NewMem()
	if _, err := vfs.Clone(i.files, files, "/", "/"); err != nil {
		return "", "", err
	}
	if what, err = hurt(files, random); err != nil {
		return what, "", err
	}
	verdict, err = i.judge(ctx, files)
	if err != nil || verdict == "refused" {
		return what, verdict, err
	}
	again, err := i.judge(ctx, files) // and once more, after it was opened and closed
	if again != verdict {
		verdict += ", then " + again
	}
	return what, verdict, err
}

// hurt changes one file.
func hurt(files vfs.FS, random *rand.Rand) (what string, err error) {
	names, err := files.List("/data")
	if err != nil {
		return "", err
	}
	slices.Sort(names)
	names = slices.DeleteFunc(names, func(n string) bool { return n == "LOCK" })
	kinds := make(map[string][]string)
	for _, n := range names {
		kinds[kindOfFile(n)] = append(kinds[kindOfFile(n)], n)
	}
	kind := slices.Sorted(maps.Keys(kinds))[random.IntN(len(kinds))]
	name := path.Join("/data", kinds[kind][random.IntN(len(kinds[kind]))])
	f, err := files.Open(name)
	if err != nil {
		return "", err
	}
	data, err := io.ReadAll(f)
	if err = errors.Join(err, f.Close()); err != nil {
		return "", err
	}
	if len(data) == 0 || random.IntN(8) == 0 {
		return fmt.Sprintf("%s removed of %s", kind, name), files.Remove(name)
	}
	switch one, at := random.IntN(6), random.IntN(len(data)); {
	case one < 2:
		what, data = fmt.Sprintf("%s cut of %s at %d of %d", kind, name, at, len(data)), data[:at]
	case one == 2:
		clear(data[at:min(len(data), at+4096)])
		what = fmt.Sprintf("%s zeroed of %s at %d of %d", kind, name, at, len(data))
	default:
		data[at] ^= byte(1 + random.IntN(255))
		what = fmt.Sprintf("%s flipped of %s at %d of %d", kind, name, at, len(data))
	}
	f, err = files.Create(name, vfs.WriteCategoryUnspecified)
	if err != nil {
		return what, err
	}
	_, err = f.Write(data)
	return what, errors.Join(err, f.Close())
}

// kindOfFile is a file's name without its number.
func kindOfFile(name string) string {
	if ext := path.Ext(name); ext == ".sst" || ext == ".log" {
		return ext
	}
	name, _, _ = strings.Cut(name, "-0")
	for strings.Count(name, ".") > 1 {
		name = name[:strings.LastIndex(name, ".")]
	}
	return name
}

func (i *image) judge(ctx context.Context, files vfs.FS) (verdict string, err error) {
	s, err := Open(damageConfig(files))
	if err != nil {
		if !strings.Contains(err.Error(), "/data") || !strings.Contains(err.Error(), "damaged") || !strings.Contains(err.Error(), "restore a backup") {
			err = fmt.Errorf("the error names neither the damage nor the remedy: %w", err)
			return "refused", err
		}
		return "refused", nil
	}
	defer s.Close()
	missing, err := i.compare(ctx, s)
	switch {
	case err != nil && strings.HasPrefix(err.Error(), "wrong: "):
		return "wrong", err
	case err != nil && !fileNumber.MatchString(err.Error()):
		return "an error when read", fmt.Errorf("the error names no file: %w", err)
	case err != nil:
		return "an error when read", nil
	case missing > 0:
		return "without some of the folds since the last commit count", nil
	}
	return "right", nil
}

var fileNumber = regexp.MustCompile(`\b0\d{5}\b`)

// compare reads everything. It returns an error that begins with "wrong: " if data is wrong and the
// store gave no error.
func (i *image) compare(ctx context.Context, s *Store) (missing int64, err error) {
	if s.ID() != i.id {
		return 0, fmt.Errorf("wrong: database %q, want %q", s.ID(), i.id)
	}
	if missing, err = i.sums(ctx, s); err != nil {
		return 0, err
	}
	for ids := range slices.Chunk(i.marks, 1000) {
		found, err := s.Applied(ctx, ids)
		if err != nil {
			return 0, err
		}
		if len(found) != len(ids) {
			return 0, fmt.Errorf("wrong: %d of %d markers", len(found), len(ids))
		}
	}
	letters, err := s.ListDeadLetters(ctx, "", 10)
	if err != nil {
		return 0, err
	}
	if len(letters) != 1 || string(letters[0].Payload) != i.letter {
		return 0, fmt.Errorf("wrong: dead letters %v", letters)
	}
	return missing, nil
}

// sums returns how much of the totals is missing; uncounted folds may be.
func (i *image) sums(ctx context.Context, s *Store) (missing int64, err error) {
	view := s.View()
	defer view.Close()
	for counter, want := range i.totals {
		values, err := view.Lookup(ctx, []store.Key{{Counter: counter}})
		if err != nil {
			return 0, err
		}
		got := int64(values[0].Count.Lo)
		if got > want || got < want-i.uncounted[counter] {
			return 0, fmt.Errorf("wrong: %.12s is %d, want %d", counter, got, want)
		}
		missing += want - got
	}
	return missing, nil
}
