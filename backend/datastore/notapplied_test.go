package datastore

import (
	"errors"
	"testing"
	"time"

	pb "cloud.google.com/go/datastore/apiv1/datastorepb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/countmill/countmill/aggregator"
)

func foldOne(t *testing.T, s *Store, adds ...aggregator.Add) error {
	t.Helper()
	_, err := s.Fold(t.Context(), &aggregator.Commit{Markers: []aggregator.Marker{newMarker()}, Adds: adds})
	return err
}

// A transaction that fails before its commit is certainly not applied. One whose commit has no
// answer may be.
func TestWhatFailsBeforeTheCommitIsNotApplied(t *testing.T) {
	t.Parallel()
	r := &recorder{}
	s := openStore(t, Config{Project: "p-1", Emulator: serve(t, r), Commit: Classic})
	for name, c := range map[string]struct {
		fails func(req any) bool
		code  codes.Code
		want  error // nil: maybe applied
	}{
		"no transaction":           {isA[*pb.BeginTransactionRequest], codes.Unavailable, aggregator.ErrNotApplied},
		"no transaction in time":   {isA[*pb.BeginTransactionRequest], codes.DeadlineExceeded, aggregator.ErrNotApplied},
		"no transaction permitted": {isA[*pb.BeginTransactionRequest], codes.PermissionDenied, aggregator.ErrDeployment},
		"nothing read":             {readsInTransaction, codes.Internal, aggregator.ErrNotApplied},
		"contention at the read":   {readsInTransaction, codes.Aborted, aggregator.ErrContended},
		"no answer to the commit":  {isA[*pb.CommitRequest], codes.Unavailable, nil},
		"contention at the commit": {isA[*pb.CommitRequest], codes.Aborted, aggregator.ErrContended},
	} {
		r.fail = func(req any) error {
			if c.fails(req) {
				return status.Error(c.code, "as the test says")
			}
			return nil
		}
		err := foldOne(t, s, add("a", 0, 1))
		for _, sentinel := range []error{aggregator.ErrNotApplied, aggregator.ErrDeployment, aggregator.ErrContended} {
			if err == nil || errors.Is(err, sentinel) != (sentinel == c.want) {
				t.Errorf("%s: got %v, is %q: %t", name, err, sentinel, errors.Is(err, sentinel))
			}
		}
	}
}

func isA[T any](req any) bool { _, ok := req.(T); return ok }

func readsInTransaction(req any) bool {
	l, ok := req.(*pb.LookupRequest)
	return ok && l.GetReadOptions().GetTransaction() != nil
}

// Without a connection the store sends no commit, and folds say so. The first may still be on the
// broken one.
func TestNoServer(t *testing.T) {
	t.Parallel()
	host, stop := serveOn(t, &recorder{}, "127.0.0.1:0")
	s := openStore(t, Config{Project: "p-1", Emulator: host, Commit: Classic, Timeout: time.Second})
	stop()
	err := foldOne(t, s)
	for deadline := time.Now().Add(2 * time.Minute); !errors.Is(err, aggregator.ErrNotApplied); err = foldOne(t, s) {
		if err == nil || time.Now().After(deadline) {
			t.Fatalf("Fold without a server: got %v, want ErrNotApplied", err)
		}
	}
}
