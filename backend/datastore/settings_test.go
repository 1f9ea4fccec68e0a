package datastore

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	pb "cloud.google.com/go/datastore/apiv1/datastorepb"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/store"
)

const day = 24 * time.Hour

func check(t testing.TB, s *Store) store.Checked {
	t.Helper()
	checked, err := s.Check(t.Context())
	if err != nil {
		t.Fatalf("Check: %v", err)
	}
	return checked
}

// Of several processes that open an empty database at once, one makes the meta record, and all use it.
func TestOneProcessMakesTheMetaRecord(t *testing.T) {
	t.Parallel()
	cfg := fresh(t)
	cfg.Create = true
	stores := make([]*Store, 4)
	var wg sync.WaitGroup
	for i := range stores {
		wg.Go(func() {
			cfg := cfg
			cfg.Window = time.Duration(i+1) * day
			var err error
			if stores[i], err = Open(t.Context(), cfg); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if t.Failed() {
		return
	}
	first := check(t, stores[0]).Settings
	prefix, key := stores[0].CacheIdentity()
	for _, s := range stores {
		got := check(t, s).Settings
		if p, k := s.CacheIdentity(); got.Window != first.Window || got.Version != 1 || !got.Since.Equal(first.Since) || p != prefix || k != key || s.id != stores[0].id {
			t.Errorf("one process has %+v and prefix %s, another %+v and %s", got, p, first, prefix)
		}
		_ = s.Close()
	}
}

func TestSettingsThatSayNothingAreRefused(t *testing.T) {
	t.Parallel()
	s := openStore(t, fresh(t))
	for name, v := range map[string]*pb.Value{
		"version": integer(0), "window": text("1d"), "pace": text("-1h"), "pace_until": text("x"), "forget_before": instant(time.Time{}), "since": integer(7),
		"cache_key": text("x"),
	} {
		properties := metaProperties(s.id)
		properties[name] = v
		putMeta(t, s, properties)
		if _, err := s.Check(t.Context()); !errors.Is(err, store.ErrDeployment) || !strings.Contains(err.Error(), name) && name != "forget_before" {
			t.Errorf("%s is %v: got error %v, want one that names it", name, v, err)
		}
	}
}

// A SetWindow whose answer was lost is repeated; that is a single change.
func TestSetWindowAnswerLost(t *testing.T) {
	t.Parallel()
	p := &tap{}
	cfg := fresh(t)
	cfg.DialOptions = []grpc.DialOption{p.option()}
	s := openStore(t, cfg)
	lose := true
	p.set(func(method string, req, reply any) (bool, error) {
		r, ok := req.(*pb.CommitRequest)
		if !ok || !lose {
			return false, nil
		}
		lose = false
		if _, err := s.commit(t.Context(), r); err != nil {
			t.Error(err)
		}
		return true, status.Error(codes.Unavailable, "connection lost")
	})
	if _, err := s.SetWindow(t.Context(), day); err == nil || errors.Is(err, countmill.ErrUnavailable) {
		t.Errorf("the answer was lost: got error %v, want an error with an unknown outcome", err)
	}
	set, err := s.SetWindow(t.Context(), day)
	if err != nil || set.Version != 2 || set.Window != day {
		t.Errorf("again: got %+v, %v, want version 2", set, err)
	}
}

// SetWindow uses no transforms, so it works with ReadOnly; a reset keeps the window.
func TestSetWindowOfAReader(t *testing.T) {
	t.Parallel()
	cfg := fresh(t)
	s := openStore(t, cfg)
	cfg.ReadOnly = true
	set, err := openStore(t, cfg).SetWindow(t.Context(), 16*day)
	if err != nil {
		t.Fatal(err)
	}
	mustRaise(t, s, "a", 1)
	remove(t, s, "a", 0)
	got := check(t, s)
	if want := set.At(got.At); got.Settings != want && !got.Settings.ForgetBefore.Equal(want.ForgetBefore) || got.Settings.Version != 2 {
		t.Errorf("settings %+v, want %+v", got.Settings, want)
	}
}

// The whole series of changes, with a service whose clock runs ahead.
func TestWindowChangesOverDays(t *testing.T) {
	t.Parallel()
	var ahead atomic.Int64
	cfg := fresh(t)
	cfg.DialOptions = []grpc.DialOption{grpc.WithChainUnaryInterceptor(
		func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			err := invoke(ctx, method, req, reply, cc, opts...)
			if r, ok := reply.(*pb.LookupResponse); ok && err == nil {
				r.ReadTime = timestamppb.New(r.ReadTime.AsTime().Add(time.Duration(ahead.Load())))
			}
			return err
		})}
	cfg.Window = day
	s := openStore(t, cfg)
	right := check(t, s).Settings
	for i, window := range []time.Duration{8 * day, 16 * day, 2 * day, 4 * day, 30 * day} {
		set, err := s.SetWindow(t.Context(), window)
		if err != nil {
			t.Fatal(err)
		}
		right = right.At(set.Since).Changed(window, set.Since).At(set.Since)
		if !cmp.Equal(set, right) {
			t.Errorf("change %d: got %+v, want %+v", i, set, right)
		}
		for range 10 {
			ahead.Add(int64(11 * time.Hour))
			now := check(t, s)
			if right = right.At(now.At); !cmp.Equal(now.Settings, right) {
				t.Errorf("%s after change %d: got %+v, want %+v", now.At.Sub(set.Since), i, now.Settings, right)
			}
		}
	}
}

func TestCacheIdentity(t *testing.T) {
	t.Parallel()
	base := Config{Project: "p", Database: "d", Namespace: "n"}
	m := &metaRecord{id: "x", cacheKey: []byte("key")}
	first := identityOf(base, m)
	if again := identityOf(base, &metaRecord{id: "x", cacheKey: []byte("key")}); again != first {
		t.Errorf("one database has %v and %v", first, again)
	}
	for name, x := range map[string]identity{
		"project":   identityOf(Config{Project: "q", Database: "d", Namespace: "n"}, m),
		"database":  identityOf(Config{Project: "p", Database: "e", Namespace: "n"}, m),
		"namespace": identityOf(Config{Project: "p", Database: "d", Namespace: "m"}, m),
		"id":        identityOf(base, &metaRecord{id: "y", cacheKey: m.cacheKey}),
	} {
		if x.prefix == first.prefix || x.key == first.key {
			t.Errorf("another %s has the same prefix or key", name)
		}
	}
	if x := identityOf(base, &metaRecord{id: "x", cacheKey: []byte("kez")}); x.prefix != first.prefix || x.key == first.key {
		t.Error("another key in the record changes the prefix, or changes nothing")
	}
}

// The database was replaced after it was opened: its settings stay as they are.
func TestSettingsOfAnotherDatabaseStay(t *testing.T) {
	t.Parallel()
	cfg := fresh(t)
	cfg.Create = true
	s := openStore(t, cfg)
	_, err := s.commitOnce(t.Context(), []*pb.Mutation{{
		Operation:    &pb.Mutation_Upsert{Upsert: &pb.Entity{Key: s.key(metaRef), Properties: map[string]*pb.Value{"id": text("another")}}},
		PropertyMask: &pb.PropertyMask{Paths: []string{"id"}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	if set, err := s.SetWindow(t.Context(), day); !errors.Is(err, store.ErrOtherDatabase) {
		t.Errorf("a window for another database: got %+v, %v, want ErrOtherDatabase", set, err)
	}
}
