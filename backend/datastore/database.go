package datastore

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	pb "cloud.google.com/go/datastore/apiv1/datastorepb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

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

	id       string // the database's id
	oneOfTwo bool   // the server takes only one transform of a property

	server, began time.Time // the server's and the machine's time when it was opened

	links   *links
	checked atomic.Int64 // how many connections there had been at the last check of the database's id
	closed  atomic.Bool
}

var _ engine.Engine = (*database)(nil)

// dialed returns a database that knows nothing yet.
func dialed(ctx context.Context, cfg Config, kinds engine.Kinds, detect detectFunc) (*database, error) {
	d := &database{kinds: kinds, links: &links{}}
	cfg.DialOptions = append(slices.Clip(cfg.DialOptions), grpc.WithStatsHandler(d.links))
	conn, err := dial(ctx, cfg, detect)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", cfg, err)
	}
	d.cfg, d.conn, d.stub = cfg, conn, pb.NewDatastoreClient(conn)
	return d, nil
}

// openDatabase connects, and checks that the database belongs to countmill, and that commits work there.
func openDatabase(ctx context.Context, cfg Config, kinds engine.Kinds, detect detectFunc) (*database, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("datastore store: %w", err)
	}
	d, err := dialed(ctx, cfg, kinds, detect)
	if err != nil {
		return nil, err
	}
	if err := d.start(ctx); err != nil {
		_ = d.Close()
		return nil, err
	}
	return d, nil
}

// start waits for a server that is not running yet, or that other starting processes keep busy. It does not wait after a
// refusal.
func (d *database) start(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, d.cfg.OpenTimeout)
	defer cancel()
	var last error
	for pause := 50 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		err := d.learn(ctx)
		if err == nil || saysNo(err) {
			d.checked.Store(d.links.made.Load())
			return err
		}
		if last == nil || ctx.Err() == nil { // the error before the end of ctx says more
			last = err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s is not usable within %s: %w", d.cfg, d.cfg.OpenTimeout, last)
		case <-time.After(pause):
		}
	}
}

func saysNo(err error) bool {
	return errors.Is(err, engine.ErrDeployment) || errors.Is(err, engine.ErrRefused) || errors.Is(err, engine.ErrNotCounted)
}

func (d *database) learn(ctx context.Context) error {
	id, at, err := d.identity(ctx)
	d.server, d.began = at, time.Now()
	switch {
	case err != nil:
		return err
	case id == "" && !d.cfg.Create:
		return fmt.Errorf("%w: %s has no meta record, so countmill has not used it yet: open it once with --create", engine.ErrDeployment, d.cfg)
	case id == "":
		id, err = d.makeIdentity(ctx)
	}
	if d.id = id; err != nil || d.cfg.ReadOnly {
		return err
	}
	return d.probe(ctx)
}

// format is the format of all data of this package. A process refuses to open a database of another format, and stops if the
// format changes while it has the database open.
const format = 4

// The identity is no row of the kind, and has the name that this entity always had.
var identityRef = ref{prefix + "Meta", "meta"}

// identity returns the id of the database, and the database's time. Without one the id is empty.
func (d *database) identity(ctx context.Context) (id string, at time.Time, _ error) {
	resp, err := d.stub.Lookup(ctx, &pb.LookupRequest{ProjectId: d.cfg.Project, DatabaseId: d.cfg.Database, Keys: []*pb.Key{d.key(identityRef)}})
	if err == nil && len(resp.GetDeferred()) > 0 {
		err = errors.New("the server deferred it")
	}
	if err != nil {
		return "", at, d.explain("look up the meta record", err, false)
	}
	if err := d.timed(resp.GetReadTime()); err != nil {
		return "", at, err
	}
	at = resp.GetReadTime().AsTime()
	if len(resp.GetFound()) == 0 {
		return "", at, nil
	}
	properties := resp.GetFound()[0].GetEntity().GetProperties()
	id = properties["id"].GetStringValue()
	switch is := properties["format"].GetIntegerValue(); {
	case 0 < is && is < format:
		err = fmt.Errorf("%w: %s was written by countmill before its first release (format %d, this is %d): use another namespace or database", engine.ErrDeployment, d.cfg, is, format)
	case is > format:
		err = fmt.Errorf("%w: %s was written by a newer version of countmill: run that version or a later one", engine.ErrDeployment, d.cfg)
	case is < 1 || id == "":
		err = fmt.Errorf("%w: %s: its meta record names format %d and id %q: another program wrote it", engine.ErrDeployment, d.cfg, is, id)
	}
	return id, at, err
}

// makeIdentity makes the identity, or returns that of a process that was faster.
func (d *database) makeIdentity(ctx context.Context) (id string, err error) {
	var b [16]byte
	_, _ = rand.Read(b[:])
	id = hex.EncodeToString(b[:])
	_, err = d.commit(ctx, nil, []*pb.Mutation{{Operation: &pb.Mutation_Insert{Insert: &pb.Entity{
		Key: d.key(identityRef), Properties: map[string]*pb.Value{"format": integer(format), "id": text(id)},
	}}}})
	if err == nil {
		d.cfg.Logger.Info("meta record made", "store", d.cfg.String(), "id", id, "window", d.cfg.Window)
		return id, nil
	}
	if status.Code(err) != codes.AlreadyExists {
		return "", d.explain("make the meta record", err, false)
	}
	if id, _, err = d.identity(ctx); err == nil && id == "" {
		err = fmt.Errorf("%w: %s: the meta record appears and disappears", engine.ErrDeployment, d.cfg)
	}
	return id, err
}

// compareIdentity compares the identity with the one that Open has found. If it is missing or has changed, the database is another
// one, for example an emulator that was restarted empty.
func (d *database) compareIdentity(ctx context.Context) error {
	id, _, err := d.identity(ctx)
	switch what := "is gone"; {
	case err != nil || id == d.id:
		return err
	case id != "":
		what = fmt.Sprintf("has changed from id %s to %s", d.id, id)
		fallthrough
	default:
		return fmt.Errorf("%w: %w: the meta record of %s %s: this is not the database that was opened, or it was emptied; restart only if that is intended",
			engine.ErrDeployment, engine.ErrOtherDatabase, d.cfg, what)
	}
}

// Check compares the identity and reads rows at that moment.
func (d *database) Check(ctx context.Context, with []engine.Key) (checked engine.Checked, err error) {
	ctx, cancel, err := d.bound(ctx)
	if err != nil {
		return checked, err
	}
	defer cancel()
	if err := d.compareIdentity(ctx); err != nil {
		return checked, err
	}
	checked.Rows = make([]engine.Row, len(with))
	var when *timestamppb.Timestamp
	if when, err = d.lookupAll(ctx, nil, with, []engine.FieldID{engine.All}, checked.Rows); err != nil {
		return engine.Checked{}, d.explain("check", err, false)
	}
	checked.At = when.AsTime()
	return checked, nil
}

// Limits returns the facts about Datastore.
func (d *database) Limits() engine.Limits {
	return engine.Limits{
		Name: fmt.Sprintf("%q %q %q", d.cfg.Project, d.cfg.Database, d.cfg.Namespace),
		Rows: maxRows, Bytes: maxCommit, Fields: maxFields, RowBytes: maxData, Keys: maxKeys, Commits: 4, RowRate: 1,
		RowsCost: true, ReadsCost: true, Spread: true, ByName: true, Returns: true, MaxThenAdd: !d.oneOfTwo,
		Clock: true, Expires: true, Past: past,
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
