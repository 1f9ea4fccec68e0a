package datastore

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	pb "cloud.google.com/go/datastore/apiv1/datastorepb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/countmill/countmill/internal/testing/longtest"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/int128"
	"github.com/countmill/countmill/wire"
)

// seriesStore opens a database with a rule for all counters.
func seriesStore(t *testing.T, cfg Config) *Store {
	t.Helper()
	s := openStore(t, cfg)
	keep := store.Retention{Minutes: store.MaxKeepMinutes, Quarters: 400 * day}
	if _, err := s.ChangeRules(t.Context(), store.RuleChange{Pattern: "*", Keep: keep}); err != nil {
		t.Fatalf("ChangeRules: %v", err)
	}
	return s
}

// ones is a commit that adds 1 to shard 0 of a counter in each of some minutes.
func ones(counter string, minutes ...wire.Minute) *store.Commit {
	c := &store.Commit{Adds: []store.ShardDelta{add(counter, 0, int64(len(minutes)))}}
	for _, m := range minutes {
		c.Buckets = append(c.Buckets, store.BucketDelta{Minute: m, Delta: 1})
	}
	return c
}

// run are n minutes from m, step apart.
func run(m wire.Minute, n int, step wire.Minute) (minutes []wire.Minute) {
	for i := range n {
		minutes = append(minutes, m+wire.Minute(i)*step)
	}
	return minutes
}

// wantMinutes checks that a series has the sum in each of the minutes, and nothing else.
func wantMinutes(t *testing.T, what string, s *Store, counter string, sum int64, minutes ...wire.Minute) {
	t.Helper()
	v := s.View()
	defer v.Close()
	got, err := v.Series(t.Context(), []store.Record{{Counter: counter, Shards: 1}}, 0, wire.MinuteOf(wire.MaxTime))
	if err != nil {
		t.Fatalf("%s: Series of %q: %v", what, counter, err)
	}
	var want []store.Bucket
	for _, m := range minutes {
		want = append(want, store.Bucket{Minute: m, Sum: int128.Of(sum)})
	}
	if !slices.Equal(got[0], want) {
		t.Errorf("%s: the series of %q is %+v, want %+v", what, counter, got, want)
	}
}

// inShard returns the buckets in shard 0 of a counter, and its properties.
func inShard(t *testing.T, s *Store, counter string) ([]slotSum, fields) {
	t.Helper()
	r := readerRef(store.Key{Counter: counter})
	found, err := s.lookupAll(t.Context(), []ref{r})
	if err != nil {
		t.Fatal(err)
	}
	buckets, err := bucketsOf(found[r])
	if err != nil {
		t.Fatal(err)
	}
	return buckets, fields{entity: found[r]}
}

func wantMoved(t *testing.T, what string, s *Store, want int) {
	t.Helper()
	if moved, err := s.MoveSeries(t.Context()); moved != want || err != nil {
		t.Errorf("%s: MoveSeries moved %d shards, %v; want %d", what, moved, err, want)
	}
}

// A fold adds minutes from Commit.Archive on to the shard, and older ones to the archive.
func TestFoldSplitsRingAndArchive(t *testing.T) {
	t.Parallel()
	s := seriesStore(t, fresh(t))
	archive := s.Limits().Ring.Archive(now())
	old := dayOf(archive).first() - 3*store.DayMinutes
	c := ones("a", old, old+1, archive-1, archive, archive+1)
	c.Adds = append(c.Adds, add("b", 0, 7))
	c.Buckets = append(c.Buckets, store.BucketDelta{Add: 1, Minute: old, Delta: 7})
	c.Markers, c.Archive = []store.Marker{newMarker()}, archive
	mustFold(t, s, c)
	if n := rows(t, s, kindSeries); n != 3 || n != c.Entities()-3 {
		t.Errorf("the archive has %d entities, Entities says %d; want 3: two days of a and one of b", n, c.Entities()-3)
	}
	buckets, f := inShard(t, s, "a")
	if len(buckets) != 2 || buckets[0].minute != archive || buckets[1].minute != archive+1 || f.integer("bucketed") != 5 || f.integer(bucketCount) != 2 {
		t.Errorf("shard a is %v", f.entity)
	}
	buckets, f = inShard(t, s, "b")
	if len(buckets) != 0 || f.integer("bucketed") != 7 || f.has(bucketCount) {
		t.Errorf("shard b is %v", f.entity)
	}
	wantMinutes(t, "of both places", s, "a", 1, old, old+1, archive-1, archive, archive+1)
	wantMinutes(t, "of the archive", s, "b", 7, old)
}

// A commit at all of its limits is one call that the service takes.
func TestFoldAtTheLimitsOfTheRing(t *testing.T) {
	t.Parallel()
	cfg, p := fresh(t), &tap{}
	cfg.DialOptions = []grpc.DialOption{p.option()}
	s := seriesStore(t, cfg)
	limits := s.Limits()
	if limits.Ring != (store.Ring{Buckets: store.SeriesBuckets, Window: store.SeriesRing, Minutes: store.SeriesMinutes}) {
		t.Errorf("the ring is %+v", limits.Ring)
	}
	archive := limits.Ring.Archive(now())
	old := run(archive-4*store.DayMinutes, 3, store.DayMinutes)
	lots := slices.Concat(old, run(archive, limits.Ring.Minutes-3, 1))
	c := ones("lots", lots...)
	c.Archive = archive
	for range 4 {
		c.Markers = append(c.Markers, newMarker())
	}
	for i := range 98 {
		other := ones(fmt.Sprint("c", i), old...)
		for _, b := range other.Buckets {
			b.Add = len(c.Adds)
			c.Buckets = append(c.Buckets, b)
		}
		c.Adds = append(c.Adds, other.Adds...)
	}
	if c.Entities() != limits.Entities {
		t.Fatalf("the commit has %d entities, want %d", c.Entities(), limits.Entities)
	}
	p.take()
	mustFold(t, s, c)
	if got := p.take(); !slices.Equal(got, []string{"Commit"}) {
		t.Errorf("the fold made the calls %v, want one Commit", got)
	}
	wantMinutes(t, "at the limit", s, "lots", 1, lots...)
	wantMinutes(t, "at the limit", s, "c97", 1, old...)
	wantMoved(t, "at the limit", s, 1)
	wantMinutes(t, "moved", s, "lots", 1, lots...)
}

// A move that dies at any of its calls leaves each sum in one place. The next one does what it left.
func TestMoveThatDies(t *testing.T) {
	t.Parallel()
	cfg, p := fresh(t), &tap{}
	cfg.DialOptions = []grpc.DialOption{p.option()}
	s := seriesStore(t, cfg)
	minutes := run(wire.MinuteOf(now())-90, s.Limits().Ring.Buckets+1, 1)
	for _, c := range []struct {
		what, call string
		applied    bool
	}{{"before it begins", "BeginTransaction", false}, {"before it reads", "Lookup", false}, {"before its commit", "Commit", false}, {"after its commit", "Commit", true}} {
		mustFold(t, s, ones(c.what, minutes...))
		died := false
		p.set(func(method string, req, _ any) (bool, error) {
			look, ok := req.(*pb.LookupRequest)
			if died || !strings.HasSuffix(method, "/"+c.call) || ok && look.GetReadOptions().GetTransaction() == nil {
				return false, nil
			}
			died = true
			if c.applied {
				if _, err := s.commit(t.Context(), req.(*pb.CommitRequest)); err != nil {
					t.Errorf("the move's commit: %v", err)
				}
			}
			return true, status.Error(codes.Unavailable, "connection lost")
		})
		if moved, err := s.MoveSeries(t.Context()); moved != 0 || err == nil || !died {
			t.Errorf("it dies %s: moved %d, error %v", c.what, moved, err)
		}
		p.set(nil)
		wantMinutes(t, "it died "+c.what, s, c.what, 1, minutes...)
		left := 1
		if c.applied {
			left = 0
		}
		wantMoved(t, "it died "+c.what, s, left)
		wantMinutes(t, "it died "+c.what+", and another moved", s, c.what, 1, minutes...)
		if buckets, f := inShard(t, s, c.what); len(buckets) != 0 || f.integer(bucketCount) != 0 || f.integer("count") != int64(len(minutes)) {
			t.Errorf("it died %s: the shard is %v in the end", c.what, f.entity)
		}
	}
	if got := rows(t, s, kindSeries); got > 8 {
		t.Errorf("the archive has %d entities, want one or two days of 4 counters", got)
	}
}

// A fold between the read and the commit of a move: it waits, or the move fails. No sum is lost.
func TestFoldInTheMiddleOfAMove(t *testing.T) {
	t.Parallel()
	cfg := fresh(t)
	other := seriesStore(t, cfg)
	p := &tap{}
	cfg.DialOptions = []grpc.DialOption{p.option()}
	s := openStore(t, cfg)
	minutes := run(wire.MinuteOf(now())-90, s.Limits().Ring.Buckets+1, 1)
	mustFold(t, s, ones("a", minutes...))
	folded := make(chan error, 1)
	begun := false
	p.set(func(_ string, req, _ any) (bool, error) {
		if c, ok := req.(*pb.CommitRequest); !ok || c.GetTransaction() == nil || begun {
			return false, nil
		}
		begun = true
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			for {
				_, err := other.Fold(t.Context(), ones("a", minutes...))
				if err == nil || !errors.Is(err, store.ErrContended) && !errors.Is(err, store.ErrNotApplied) {
					folded <- err
					return
				}
			}
		}()
		select {
		case <-ended:
		case <-time.After(time.Second): // the fold waits for the move
		}
		return false, nil
	})
	if _, err := s.MoveSeries(t.Context()); !begun {
		t.Fatalf("the move did not come to its commit: %v", err)
	}
	if err := <-folded; err != nil {
		t.Fatalf("the fold: %v", err)
	}
	p.set(nil)
	wantMinutes(t, "after a fold in the middle of a move", s, "a", 2, minutes...)
	if _, err := s.MoveSeries(t.Context()); err != nil {
		t.Errorf("another move: %v", err)
	}
	wantMinutes(t, "after another move", s, "a", 2, minutes...)
}

// A move between the two reads of a series: the archive is read at the moment of the rings.
func TestMoveInTheMiddleOfARead(t *testing.T) {
	t.Parallel()
	cfg := fresh(t)
	mover := seriesStore(t, cfg)
	p := &tap{}
	cfg.DialOptions = []grpc.DialOption{p.option()}
	s := openStore(t, cfg)
	minutes := run(wire.MinuteOf(now())-90, s.Limits().Ring.Buckets+1, 1)
	mustFold(t, mover, ones("a", minutes...))
	moved := 0
	p.set(func(_ string, req, _ any) (bool, error) {
		q, ok := req.(*pb.RunQueryRequest)
		if !ok || q.GetQuery().GetKind()[0].GetName() != kindSeries || moved > 0 {
			return false, nil
		}
		moved = 1
		wantMoved(t, "before the archive is read", mover, 1)
		return false, nil
	})
	wantMinutes(t, "read beside a move", s, "a", 1, minutes...)
	if moved == 0 {
		t.Error("the archive was not read")
	}
	p.set(nil)
	wantMinutes(t, "after the move", s, "a", 1, minutes...)
}

// Moves that fail one after the other end the call. Their shards wait for the next call.
func TestMovesEndAfterErrors(t *testing.T) {
	t.Parallel()
	cfg, p := fresh(t), &tap{}
	cfg.DialOptions = []grpc.DialOption{p.option()}
	s := seriesStore(t, cfg)
	const shards = sweepErrors + 2
	for i := range shards {
		mustFold(t, s, ones(fmt.Sprint(i), run(wire.MinuteOf(now())-90, s.Limits().Ring.Buckets+1, 1)...))
	}
	tries := 0
	p.set(func(_ string, req, _ any) (bool, error) {
		_, begins := req.(*pb.BeginTransactionRequest)
		if begins {
			tries++
		}
		return begins, status.Error(codes.Unavailable, "no")
	})
	if moved, err := s.MoveSeries(t.Context()); moved != 0 || err == nil || tries != sweepErrors {
		t.Errorf("moved %d with %d tries, error %v; want %d tries", moved, tries, err, sweepErrors)
	}
	p.set(nil)
	wantMoved(t, "after the errors", s, shards)
	p.take()
	wantMoved(t, "without work", s, 0)
	if calls := p.take(); len(calls) != 0 {
		t.Errorf("without a crowded shard it makes the calls %v", calls)
	}
}

// Of two processes that find the same shard crowded, one moves it. The number of buckets outlives
// processes.
func TestTwoProcessesFindACrowdedShard(t *testing.T) {
	t.Parallel()
	cfg := fresh(t)
	s, other := seriesStore(t, cfg), openStore(t, cfg)
	buckets := s.Limits().Ring.Buckets
	minutes := run(wire.MinuteOf(now())-90, buckets+2, 1)
	mustFold(t, s, ones("a", minutes[:buckets+1]...))
	mustFold(t, other, ones("a", minutes[buckets+1]))
	wantMoved(t, "the second to find it", other, 1)
	wantMoved(t, "the first to find it", s, 0)
	wantMinutes(t, "moved by one", s, "a", 1, minutes...)

	mustFold(t, s, ones("b", minutes[:buckets]...))
	wantMoved(t, "with few buckets", s, 0)
	mustFold(t, openStore(t, cfg), ones("c", minutes...)) // of another process
	last := openStore(t, cfg)
	mustFold(t, last, ones("b", minutes[buckets:]...))
	wantMoved(t, "with those of an earlier process", last, 1)
	wantMinutes(t, "of two processes", last, "b", 1, minutes...)
	if buckets, f := inShard(t, last, "b"); len(buckets) != 0 || f.integer("bucketed") != int64(len(minutes)) {
		t.Errorf("the shard is %v", f.entity)
	}
}

// A shard with more buckets than a transaction takes is moved in parts.
func TestMoveInParts(t *testing.T) {
	t.Parallel()
	s := seriesStore(t, fresh(t))
	const n = mostMoved + 70
	minutes := run(wire.MinuteOf(now())-n-5, n, 1)
	for lot := range slices.Chunk(minutes, s.Limits().Ring.Minutes) {
		mustFold(t, s, ones("a", lot...))
	}
	wantMoved(t, "the first part", s, 1)
	if buckets, f := inShard(t, s, "a"); len(buckets) != 70 || f.integer(bucketCount) != 70 {
		t.Errorf("it left %d buckets in the shard, which counts %d; want 70", len(buckets), f.integer(bucketCount))
	}
	wantMinutes(t, "in part", s, "a", 1, minutes...)
	mustFold(t, s, ones("a", minutes[n-1]+1)) // finds it crowded
	wantMoved(t, "the second part", s, 1)
	wantMinutes(t, "in all", s, "a", 1, append(minutes, minutes[n-1]+1)...)
}

// Buckets have no index: it would cost writes. Totals do not read them.
func TestBucketsCostTotalsNothing(t *testing.T) {
	t.Parallel()
	cfg, p := fresh(t), &tap{}
	cfg.DialOptions = []grpc.DialOption{p.option()}
	s := seriesStore(t, cfg)
	c := ones("a", wire.MinuteOf(now())-5*store.DayMinutes, wire.MinuteOf(now()))
	c.Archive = s.Limits().Ring.Archive(now())
	mustFold(t, s, c)
	indexed := make(map[string][]string)
	for _, kind := range []string{kindShard, kindSeries} {
		if _, err := s.query(t.Context(), nil, span{kind: kind}, 10, func(e *pb.Entity) error {
			for name, v := range e.GetProperties() {
				if !v.GetExcludeFromIndexes() {
					indexed[kind] = append(indexed[kind], name)
				}
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	if !slices.Equal(indexed[kindShard], []string{"counter"}) || !slices.Equal(indexed[kindSeries], []string{"due"}) {
		t.Errorf("indexed properties: %v, want the counter of a shard and due of a day", indexed)
	}
	looked := 0
	p.set(func(_ string, req, _ any) (bool, error) {
		if r, ok := req.(*pb.LookupRequest); ok && refOf(r.GetKeys()[0]).kind == kindShard {
			looked++
			if paths := r.GetPropertyMask().GetPaths(); len(paths) == 0 || slices.ContainsFunc(paths, func(p string) bool { _, ok := slotOf(p); return ok }) {
				t.Errorf("a look-up reads the properties %v, want all without buckets", paths)
			}
		}
		return false, nil
	})
	if v := value(t, s, "a", 0); v.Count != int128.Of(2) || v.Bucketed != v.Count || looked == 0 {
		t.Errorf("after %d look-ups the shard is %+v, want 2 of 2 bucketed", looked, v)
	}
}

// deletedWithDays makes and deletes a counter whose series has more days than a commit takes.
func deletedWithDays(t *testing.T, s *Store, counter string) {
	t.Helper()
	mustRaise(t, s, counter, 1)
	const days = maxEntities + 40
	minutes := run(wire.MinuteOf(now())-days*store.DayMinutes, days, store.DayMinutes)
	for lot := range slices.Chunk(minutes, s.Limits().Ring.Minutes) {
		c := ones(counter, lot...)
		c.Archive = wire.MinuteOf(now())
		mustFold(t, s, c)
	}
	remove(t, s, counter, days)
	<-time.After(2 * time.Millisecond)
}

// A deleted counter with more days than a commit takes is removed in parts, the record last.
func TestSweepOfManyDays(t *testing.T) {
	t.Parallel()
	cfg, p := fresh(t), &tap{}
	cfg.DialOptions = []grpc.DialOption{p.option()}
	s := seriesStore(t, cfg)
	mustFold(t, s, ones("kept", 1000))
	deletedWithDays(t, s, "gone")
	var deletes []int
	p.set(func(_ string, req, _ any) (bool, error) {
		if r, ok := req.(*pb.CommitRequest); ok {
			deletes = append(deletes, len(r.GetMutations()))
		}
		return false, nil
	})
	if n, err := s.SweepCounters(t.Context(), 0); n != 1 || err != nil {
		t.Errorf("SweepCounters removed %d, %v; want 1", n, err)
	}
	p.set(nil)
	if want := []int{maxEntities, 40 + 2}; !slices.Equal(deletes, want) {
		t.Errorf("the sweep's commits have %v mutations, want %v", deletes, want)
	}
	if days, shards := rows(t, s, kindSeries), rows(t, s, kindShard); days != 0 || shards != 1 {
		t.Errorf("%d days and %d shards are left, want no day and the shard of the other counter", days, shards)
	}
}

// A counter that counts something between two parts of its sweep stays, with what it counted.
func TestSweepOfManyDaysBesideAFold(t *testing.T) {
	t.Parallel()
	cfg, p := fresh(t), &tap{}
	plain := seriesStore(t, cfg)
	cfg.DialOptions = []grpc.DialOption{p.option()}
	s := openStore(t, cfg)
	deletedWithDays(t, s, "a")
	late, begun := wire.MinuteOf(now()), 0
	p.set(func(_ string, req, _ any) (bool, error) {
		if _, ok := req.(*pb.BeginTransactionRequest); ok {
			if begun++; begun == 2 {
				mustFold(t, plain, ones("a", late))
			}
		}
		return false, nil
	})
	if n, err := s.SweepCounters(t.Context(), 0); n != 0 || err != nil || begun != 2 {
		t.Errorf("SweepCounters removed %d, %v, in %d transactions; want none in 2", n, err, begun)
	}
	p.set(nil)
	v := value(t, s, "a", store.RecordKey)
	if count := value(t, s, "a", 0); !v.Exists || !v.Reset.DeletedAt.IsZero() || count.Count.Sub(v.Reset.Baseline) != int128.Of(1) {
		t.Errorf("the record is %+v and the shard %+v, want a counter that counts 1", v, count)
	}
	if buckets, f := inShard(t, s, "a"); len(buckets) != 1 || buckets[0].minute != late {
		t.Errorf("the shard is %v, want the bucket of the fold", f.entity)
	}
}

// A process remembers 65,536 buckets. At 100M increments an hour to a million counters it forgets some between
// two folds of a minute, and so moves shards early. That costs less than 1 % of the shards' entities.
func TestForgottenBuckets(t *testing.T) {
	t.Parallel()
	longtest.Only(t, "draws 60 million increments")
	const rate, windows, names, minutes = 27_778, 9, 1_000_000, 40
	rank := rand.NewZipf(rand.New(rand.NewPCG(1, 2)), 1.1, 1, names-1)
	var seen recent
	var hashes [names]uint64
	var window, buckets [names]int32
	folds, moves := 0, 0
	for n := range int32(minutes * 60 * windows) {
		minute := wire.Minute(n / (60 * windows))
		if minute < minutes/2 {
			folds, moves = 0, 0 // the busiest rings are not full yet
		}
		for range rate / windows {
			k := rank.Uint64()
			if window[k] == n+1 {
				continue
			}
			if window[k] == 0 {
				hashes[k] = wire.ShardHash(strconv.FormatUint(k, 10), 0)
			}
			window[k] = n + 1
			folds++
			if seen.isNew(hashes[k], minute) {
				buckets[k]++
			}
			if buckets[k] > store.SeriesBuckets {
				buckets[k], moves = 0, moves+1
			}
		}
	}
	share := 2 * float64(moves) / float64(folds)
	t.Logf("%d folds, %d moves of two entities: %.2f %%", folds, moves, 100*share)
	if share > 0.01 || moves == 0 {
		t.Errorf("moves write %.4f times the entities of folds, want at most 0.01", share)
	}
}
