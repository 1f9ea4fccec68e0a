package datastore

import (
	"context"
	"fmt"
	"sync/atomic"

	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/stats"
)

// links counts the connections that were made. It is gRPC's stats handler.
type links struct{ made atomic.Int64 }

func (l *links) HandleConn(_ context.Context, s stats.ConnStats) {
	if _, ok := s.(*stats.ConnBegin); ok {
		l.made.Add(1)
	}
}

func (l *links) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (l *links) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context   { return ctx }
func (l *links) HandleRPC(context.Context, stats.RPCStats)                         {}

// recheck compares the meta record before the first call over a new connection: an
// emulator that was restarted is empty, and would take folds as if nothing had happened.
// A connection may break between this and the call; confirm asks again afterwards.
func (s *Store) recheck(ctx context.Context) error {
	for {
		made := s.links.made.Load()
		if made == s.checked.Load() && s.conn.GetState() == connectivity.Ready {
			return nil
		}
		if _, _, err := s.compareMeta(ctx); err != nil {
			return err
		}
		s.checked.Store(made) // the look-up may have made another: then once more
	}
}

// confirm is asked after an answer that something will be taken for done: if the call may
// have gone over a connection whose other end is another database, its outcome is
// unknown.
func (s *Store) confirm(ctx context.Context, doing string) error {
	if err := s.recheck(ctx); err != nil {
		return fmt.Errorf("%s: answered, but maybe by another database: %v", doing, err) // not %w: maybe applied
	}
	return nil
}
