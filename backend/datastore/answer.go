package datastore

import (
	"errors"
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/countmill/countmill/store"
)

// sentinel is what a code of the service means to an aggregator. A commit was maybe
// applied after ErrContended and where it is nil: every code that is not in the table, those
// of Google's to come included. (34 of 44 deadline errors in an experiment were commits that
// had been applied.)
//
// Only ABORTED says that writers stood in each other's way. A deadline that passes does not:
// when the service is slow or away all of them do, and counters would be given shards for it
// that they keep for ever.
func sentinel(code codes.Code) error {
	switch code {
	case codes.AlreadyExists:
		return store.ErrMarkerExists
	case codes.InvalidArgument, codes.OutOfRange:
		return store.ErrRefused
	case codes.Aborted:
		return store.ErrContended
	case codes.PermissionDenied, codes.Unauthenticated, codes.NotFound, codes.FailedPrecondition, codes.Unimplemented:
		return store.ErrDeployment
	default:
		return nil
	}
}

// notApplied is for errors from before a commit was sent, where they mean nothing more. Once it is
// sent nothing is certain: an error of the connection may come after the server has it.
func notApplied(err error) error {
	for _, meaning := range []error{store.ErrDeployment, store.ErrContended, store.ErrRefused, store.ErrMarkerExists} {
		if err == nil || errors.Is(err, meaning) {
			return err
		}
	}
	return fmt.Errorf("%w: %w", store.ErrNotApplied, err)
}

// explain adds what was being done and what the answer means.
func (s *Store) explain(doing string, err error) error {
	if err == nil {
		return nil
	}
	if meaning := sentinel(status.Code(err)); meaning != nil {
		return fmt.Errorf("%w: %s: %s: %w", meaning, s.cfg, doing, err)
	}
	return fmt.Errorf("%s: %s: %w", s.cfg, doing, err)
}
