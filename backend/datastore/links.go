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

// recheck asks same before the first call over a new connection. A restarted emulator is empty, and would accept folds as if
// nothing had happened. The connection may still break between this check and the call; confirm checks for that afterwards.
func (d *database) recheck(ctx context.Context) error {
	for d.same != nil {
		made := d.links.made.Load()
		if made == d.checked.Load() && d.conn.GetState() == connectivity.Ready {
			return nil
		}
		if err := d.same(ctx); err != nil {
			return err
		}
		d.checked.Store(made) // its look-up may have made another connection: then check again
	}
	return nil
}

// confirm is called after the answer of a call that changes data. If the call may have reached another
// database over a new connection, its outcome is unknown.
func (d *database) confirm(ctx context.Context, doing string) error {
	if err := d.recheck(ctx); err != nil {
		return fmt.Errorf("%s: answered, but maybe by another database: %v", doing, err) // not %w: maybe applied
	}
	return nil
}
