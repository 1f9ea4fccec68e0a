package datastore

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	pb "cloud.google.com/go/datastore/apiv1/datastorepb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/countmill/countmill/aggregator"
	"github.com/countmill/countmill/internal/emulator"
	"github.com/countmill/countmill/wire"
)

// sweepers are databases of the test's own that have no TTL policy: the older emulator,
// and the Firestore emulator that takes 25 entity groups.
func sweepers(t *testing.T) map[string]Config {
	t.Helper()
	return map[string]Config{
		"classic": {Project: emulator.Project(), Emulator: emulator.Datastore(t)},
		"groups":  {Project: emulator.Project(), Emulator: emulator.Firestore(t), EntityGroups: true},
	}
}

// markAt folds n markers that expire at a time, whose ids begin with first.
func markAt(t *testing.T, s *Store, n int, first byte, at time.Time) []wire.PartID {
	t.Helper()
	ids := make([]wire.PartID, n)
	wire.RandomIDs(rand.Reader, wire.AnonymousClass, ids)
	c := &aggregator.Commit{}
	for i := range ids {
		ids[i][0] = first
		c.Markers = append(c.Markers, aggregator.Marker{ID: ids[i], Fingerprint: 7, Fold: 8, ExpireAt: at.Truncate(time.Microsecond)})
		if len(c.Markers) == s.entities || i == n-1 {
			mustFold(t, s, c)
			c.Markers = nil
		}
	}
	return ids
}

// left is how many of the markers are there.
func left(t *testing.T, s *Store, ids []wire.PartID) int {
	t.Helper()
	found, err := s.Applied(t.Context(), ids)
	if err != nil {
		t.Fatal(err)
	}
	return len(found)
}

func TestSweep(t *testing.T) {
	t.Parallel()
	for name, cfg := range sweepers(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := openStore(t, cfg)
			const day = 24 * time.Hour
			old := slices.Concat(
				markAt(t, s, 60, 0xab, now().Add(-2*day)), // more than a commit takes
				markAt(t, s, 1, 0x00, now().Add(-2*day)), markAt(t, s, 1, 0xff, now().Add(-100*day)))
			fresh := slices.Concat(
				markAt(t, s, 30, 0xab, now().Add(day)), markAt(t, s, 1, 0x00, now().Add(time.Minute)),
				markAt(t, s, 1, 0xff, now().Add(-sweepMargin/2)))
			n, err := s.Sweep(t.Context())
			if err != nil || n != len(old) || s.Swept() != int64(n) {
				t.Errorf("swept %d markers (%d in all), error %v; want %d", n, s.Swept(), err, len(old))
			}
			if n := left(t, s, old); n != 0 {
				t.Errorf("%d expired markers are still there", n)
			}
			if n := left(t, s, fresh); n != len(fresh) {
				t.Errorf("%d of %d markers are left that have not expired", n, len(fresh))
			}
			if n, err := s.Sweep(t.Context()); n != 0 || err != nil {
				t.Errorf("a second sweep deleted %d markers, error %v", n, err)
			}
		})
	}
}

// What the query says of a marker may be old: the one that is there now decides, also
// where its time is only just over. The sweep gets past those that stay.
func TestSweepKeepsMarkersThatCameAgain(t *testing.T) {
	t.Parallel()
	for name, cfg := range sweepers(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := openStore(t, cfg)
			comeAgain, late := now().Add(9*24*time.Hour), now().Add(-sweepMargin/2)
			ids := markAt(t, s, 30, 0xab, comeAgain)
			for lot := range slices.Chunk(ids, 20) { // as if they were found by what stood there before
				var lies []*pb.Mutation
				for i, id := range lot {
					at := comeAgain
					if i%2 == 0 {
						at = late
					}
					r := ref{kindApplied, id.String()}
					lies = append(lies, s.replace(r, map[string]*pb.Value{
						"fingerprint": integer(7), "fold": integer(8), "expire_at": instant(at), expiresOn: indexedText("ab:2001-01-01"),
					}))
				}
				if _, err := s.commitOnce(t.Context(), lies); err != nil {
					t.Fatal(err)
				}
			}
			refs, _, err := s.expired(t.Context(), "ab", nil)
			if err != nil || len(refs) != len(ids) {
				t.Fatalf("%d markers are proposed, error %v, want %d", len(refs), err, len(ids))
			}
			if n, err := s.Sweep(t.Context()); n != 0 || err != nil {
				t.Errorf("swept %d markers, error %v", n, err)
			}
			if n := left(t, s, ids); n != len(ids) {
				t.Errorf("%d of %d markers are left", n, len(ids))
			}
		})
	}
}

// A machine whose clock is days ahead must not forget what the store still knows.
func TestSweepGoesByTheStoresClock(t *testing.T) {
	t.Parallel()
	cfg, ahead := fresh(t), 4*24*time.Hour
	cfg.Sweep = SweepOn
	cfg.DialOptions = []grpc.DialOption{grpc.WithChainUnaryInterceptor(
		func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			err := invoke(ctx, method, req, reply, cc, opts...)
			if r, ok := reply.(*pb.LookupResponse); ok && err == nil {
				r.ReadTime = timestamppb.New(r.ReadTime.AsTime().Add(-ahead))
			}
			return err
		})}
	s := openStore(t, cfg)
	young, old := markAt(t, s, 3, 1, now().Add(-3*24*time.Hour)), markAt(t, s, 3, 2, now().Add(-5*24*time.Hour))
	if n, err := s.Sweep(t.Context()); n != len(old) || err != nil {
		t.Errorf("swept %d markers, error %v, want %d", n, err, len(old))
	}
	if n := left(t, s, young); n != len(young) {
		t.Errorf("%d of %d markers are left that have not expired by the store's clock", n, len(young))
	}
}

// Several processes may sweep at once. What one leaves to another, a later sweep finds.
func TestSweepsAtOnce(t *testing.T) {
	t.Parallel()
	for name, cfg := range sweepers(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := openStore(t, cfg)
			var old, young []wire.PartID
			for first := range byte(4) {
				old = append(old, markAt(t, s, 40, first, now().Add(-50*time.Hour))...)
				young = append(young, markAt(t, s, 10, first, now().Add(50*time.Hour))...)
			}
			var wg sync.WaitGroup
			for range 3 {
				other := openStore(t, cfg)
				wg.Go(func() {
					for first := range byte(4) { // all begin at one place, so that they do meet
						_, _ = other.sweepSwath(t.Context(), fmt.Sprintf("%02x", first))
					}
				})
			}
			wg.Wait()
			if _, err := s.Sweep(t.Context()); err != nil {
				t.Error(err)
			}
			if n := left(t, s, old); n != 0 {
				t.Errorf("%d expired markers are still there", n)
			}
			if n := left(t, s, young); n != len(young) {
				t.Errorf("%d of %d markers are left that have not expired", n, len(young))
			}
		})
	}
}

// Elsewhere a TTL policy deletes markers, and nothing is written that would have to be
// indexed.
func TestNoSweepWithTTL(t *testing.T) {
	t.Parallel()
	cfg, p := fresh(t), &tap{}
	cfg.DialOptions = []grpc.DialOption{p.option()}
	s := openStore(t, cfg)
	ids := markAt(t, s, 2, 1, now().Add(-50*time.Hour))
	found, err := s.lookupAll(t.Context(), []ref{{kindApplied, ids[0].String()}, {kindApplied, ids[1].String()}})
	if err != nil {
		t.Fatal(err)
	}
	for r, e := range found {
		for name, v := range e.GetProperties() {
			if !v.GetExcludeFromIndexes() {
				t.Errorf("marker %s: property %s is indexed", r.name, name)
			}
		}
	}
	p.take()
	if n, err := s.Sweep(t.Context()); n != 0 || err != nil || len(p.take()) != 0 {
		t.Errorf("swept %d markers, error %v, want no call", n, err)
	}
}

func TestSweepIsDecided(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		sweep    string
		entities int
		readOnly bool
		want     bool
		says     string
	}{
		{sweep: SweepAuto, entities: 400},
		{sweep: SweepAuto, entities: 25, want: true, says: "aggregators sweep expired markers"},
		{sweep: SweepOn, entities: 400, want: true, says: "aggregators sweep expired markers"},
		{sweep: SweepOff, entities: 25, says: "expired markers stay in this database"},
		{sweep: SweepOff, entities: 400},
		{sweep: SweepOff, entities: 400, readOnly: true},
	} {
		log := &logbook{}
		s := &Store{cfg: Config{Sweep: c.sweep, ReadOnly: c.readOnly, Logger: log.logger()}, entities: c.entities}
		s.decideSweep()
		s.saySweep()
		if s.sweeps != c.want || len(log.lines) > 0 != (c.says != "") || !log.has(c.says) && c.says != "" {
			t.Errorf("sweep=%s, %d entities: sweeps %t and says %q", c.sweep, c.entities, s.sweeps, log.lines)
		}
	}
}

// One commit that fails neither ends a sweep nor goes unsaid.
func TestSweepGoesOnAfterAnError(t *testing.T) {
	t.Parallel()
	cfg, p := fresh(t), &tap{}
	cfg.Sweep, cfg.DialOptions = SweepOn, []grpc.DialOption{p.option()}
	s := openStore(t, cfg)
	ids := slices.Concat(markAt(t, s, 3, 5, now().Add(-50*time.Hour)), markAt(t, s, 3, 6, now().Add(-50*time.Hour)))
	commits := 0
	p.set(func(method string, _, _ any) (bool, error) {
		if method == pb.Datastore_Commit_FullMethodName {
			commits++
		}
		return method == pb.Datastore_Commit_FullMethodName && commits == 1, status.Error(codes.Aborted, "contention")
	})
	if n, err := s.Sweep(t.Context()); n != 3 || status.Code(err) != codes.Aborted {
		t.Errorf("swept %d markers, error %v, want 3 and the one that was aborted", n, err)
	}
	if n, err := s.Sweep(t.Context()); n != 3 || err != nil {
		t.Errorf("the next sweep: %d markers, error %v, want the other 3", n, err)
	}
	if n := left(t, s, ids); n != 0 {
		t.Errorf("%d expired markers are still there", n)
	}
}

// A store that is away ends a sweep soon, and a store that is closed at once.
func TestSweepEnds(t *testing.T) {
	t.Parallel()
	cfg, p := fresh(t), &tap{}
	cfg.Sweep, cfg.DialOptions = SweepOn, []grpc.DialOption{p.option()}
	s := openStore(t, cfg)
	ids := markAt(t, s, 900, 5, now().Add(-50*time.Hour))

	ctx, cancel := context.WithCancel(t.Context())
	p.set(func(method string, _, _ any) (bool, error) {
		if method == pb.Datastore_Commit_FullMethodName {
			cancel()
		}
		return false, nil
	})
	if n, err := s.Sweep(ctx); !errors.Is(err, context.Canceled) && status.Code(err) != codes.Canceled || n > s.entities {
		t.Errorf("a sweep that was stopped: %d markers, error %v", n, err)
	}
	if n := left(t, s, ids); n < len(ids)-s.entities {
		t.Errorf("a sweep that was stopped at its first commit went on: %d of %d are left", n, len(ids))
	}
	p.set(func(string, any, any) (bool, error) { return true, status.Error(codes.Unavailable, "away") })
	p.take()
	if _, err := s.Sweep(t.Context()); status.Code(err) != codes.Unavailable {
		t.Errorf("a store that is away: got error %v", err)
	}
	if calls := p.take(); len(calls) != sweepErrors {
		t.Errorf("a store that is away was asked %d times, want %d", len(calls), sweepErrors)
	}
	p.set(nil)
	_ = s.Close()
	if _, err := s.Sweep(t.Context()); err == nil {
		t.Error("a store that is closed was swept")
	}
}
