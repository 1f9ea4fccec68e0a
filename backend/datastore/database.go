package datastore

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	pb "cloud.google.com/go/datastore/apiv1/datastorepb"
	"google.golang.org/grpc"

	"github.com/countmill/countmill/store/engine"
)

const (
	// maxRows is the most entities of a commit. The documentation no longer gives a number; the last one was 500.
	maxRows = 400
	// maxFields is the most fields of a change: the service takes 500 transforms of an entity, and a wide field may take two.
	maxFields = 250
	// maxData is below the most bytes of an entity, 1 MiB.
	maxData = 900 << 10
	// maxCommit is the most bytes of a commit that the store may split. The service takes 10 MiB, the emulators' gRPC servers 4 MiB.
	maxCommit = 3 << 20
	// past is how long the service keeps a moment.
	past = time.Hour
)

// A database is an open one. It is an engine.Engine.
type database struct {
	cfg   Config
	kinds engine.Kinds
	conn  *grpc.ClientConn
	stub  pb.DatastoreClient

	oneOfTwo bool         // the server takes only one transform of a property
	ahead    atomic.Int64 // the server's clock minus the machine's, at the last read

	links   *links
	same    func(ctx context.Context) error // says whether this is the database that was opened; nil while it is opened
	checked atomic.Int64                    // how many connections there had been when it last said so
	closed  atomic.Bool
}

var _ engine.Engine = (*database)(nil)

// dialed connects to a database. It makes no call.
func dialed(ctx context.Context, cfg Config, kinds engine.Kinds, detect detectFunc) (*database, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("datastore store: %w", err)
	}
	d := &database{kinds: kinds, links: &links{}}
	cfg.DialOptions = append(slices.Clip(cfg.DialOptions), grpc.WithStatsHandler(d.links))
	conn, err := dial(ctx, cfg, detect)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", cfg, err)
	}
	d.cfg, d.conn, d.stub = cfg, conn, pb.NewDatastoreClient(conn)
	return d, nil
}

// Check reads rows. Whoever opened the database knows by them whether it is the same one.
func (d *database) Check(ctx context.Context, with []engine.Key) (checked engine.Checked, err error) {
	ctx, cancel, err := d.bound(ctx)
	if err != nil {
		return checked, err
	}
	defer cancel()
	rows, when, err := d.lookup(ctx, nil, with, []engine.FieldID{engine.All})
	if err == nil {
		err = d.timed(when)
	}
	if err != nil {
		return checked, d.explain("check", err, false)
	}
	return engine.Checked{At: when.AsTime(), Rows: rows}, nil
}

// Limits returns the facts about Datastore.
func (d *database) Limits() engine.Limits {
	return engine.Limits{
		Name: fmt.Sprintf("%q %q %q", d.cfg.Project, d.cfg.Database, d.cfg.Namespace),
		Rows: maxRows, Bytes: maxCommit, Fields: maxFields, RowBytes: maxData, Keys: maxKeys, Commits: 4, RowRate: 1,
		RowsCost: true, Spread: true, ByName: true, Returns: true, MaxThenAdd: !d.oneOfTwo,
		Clock: true, Expires: true,
	}
}

// Moment returns zero: other processes have the database too.
func (d *database) Moment() time.Time { return time.Time{} }

// Resume does nothing.
func (d *database) Resume(time.Time) {}

// Close ends the connection. Running calls return errors. A second call does nothing.
func (d *database) Close() error {
	if d.closed.Swap(true) {
		return nil
	}
	if err := d.conn.Close(); err != nil {
		return fmt.Errorf("close %s: %w", d.cfg, err)
	}
	d.cfg.Logger.Info("store closed", "store", d.cfg.String())
	return nil
}

// call begins a call and bounds its time. The caller defers cancel. On a new connection, call first checks that the same
// database answers.
func (d *database) call(ctx context.Context) (_ context.Context, cancel context.CancelFunc, err error) {
	ctx, cancel, err = d.bound(ctx)
	if err != nil {
		return nil, nil, err
	}
	if err := d.recheck(ctx); err != nil {
		cancel()
		return nil, nil, err
	}
	return ctx, cancel, nil
}

func (d *database) bound(ctx context.Context) (_ context.Context, cancel context.CancelFunc, err error) {
	if err := ctx.Err(); err != nil || d.closed.Load() {
		return nil, nil, fmt.Errorf("%w: %s is closed, or the caller has given up: %v", engine.ErrNotApplied, d.cfg, err)
	}
	ctx, cancel = context.WithTimeout(ctx, d.cfg.Timeout)
	return ctx, cancel, nil
}
