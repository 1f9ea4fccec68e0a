package datastore

import (
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/countmill/countmill/aggregator"
)

// sentinel is what a code of the service means to an aggregator, nil where a commit was
// maybe applied: every code that is not in the table, those of Google's to come
// included. (34 of 44 deadline errors in an experiment were commits that had been applied.)
func sentinel(code codes.Code) error {
	switch code {
	case codes.AlreadyExists:
		return aggregator.ErrMarkerExists
	case codes.InvalidArgument, codes.OutOfRange:
		return aggregator.ErrRefused
	case codes.PermissionDenied, codes.Unauthenticated, codes.NotFound, codes.FailedPrecondition, codes.Unimplemented:
		return aggregator.ErrDeployment
	default:
		return nil
	}
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
