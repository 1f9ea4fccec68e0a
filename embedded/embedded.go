package embedded

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/aggregator"
	"github.com/countmill/countmill/internal/app"
	"github.com/countmill/countmill/publisher"
	"github.com/countmill/countmill/reader"
	"github.com/countmill/countmill/sequence"
)

// A DB is countmill over a directory. It is safe for concurrent use. Close it, or increments of Add
// may be lost.
type DB struct {
	dir    string
	app    *app.App
	pub    *publisher.Publisher
	agg    *aggregator.Aggregator
	reader *reader.Reader

	sequences *sequence.Issuer

	stop context.CancelFunc
	done chan struct{} // closed when nothing runs any more
	err  error         // of the end; read it after done
}

// Open opens the counters in dir, and makes the directory if it is missing. It finds
// everything that an earlier process confirmed before it was killed. The error names everything that is wrong with the
// options, or says that another process has the directory.
func Open(dir string, opts ...Option) (*DB, error) {
	o := options{cfg: app.Config{Store: app.PebbleURL(dir)}}
	for _, option := range opts {
		option(&o)
	}
	if dir == "" {
		o.wrong("the name of the directory is empty")
	}
	if o.cfg.Tokens != "" && o.cfg.Insecure {
		o.wrong("WithTokens names who may call, and WithInsecure lets anybody: give one of them")
	}
	err := errors.Join(o.errs...)
	var a *app.App
	if err == nil {
		a, err = app.Embed(o.cfg)
	}
	if flag, ok := errors.AsType[*app.FlagError](err); ok {
		err = flag.Err // a caller of Open has no flags
	}
	if err != nil {
		return nil, fmt.Errorf("embedded: open %s: %w", dir, err)
	}
	db := &DB{dir: dir, app: a, done: make(chan struct{})}
	db.pub, db.agg, db.reader = a.Roles()
	db.sequences = a.Sequences()
	ctx, stop := context.WithCancel(context.Background())
	db.stop = stop
	go func() {
		defer close(db.done)
		db.err = a.Run(ctx)
	}()
	return db, nil
}

// Close takes no more increments, writes all that it has, and releases the directory. It
// takes as long as WithCloseTimeout at most. After nil, everything that was accepted is on disk. It
// may be called again, and returns the same error: that of the end also if the DB ended by itself.
func (db *DB) Close() error {
	db.stop()
	<-db.done
	return db.err
}

// Done is closed when the DB has ended: after Close, or by itself if the outcome of a write is
// unknown. Then all calls return errors, Close returns the reason, and a new Open finds everything
// that was confirmed.
func (db *DB) Done() <-chan struct{} { return db.done }

// Add adds delta to a counter and returns at once: the increment is on disk a moment later, or after
// Flush or Close. It allocates nothing for a counter that was used lately. After an error nothing is
// counted. A delta is not 0, and from -(2^53-1) to 2^53-1.
func (db *DB) Add(counter string, delta int64) error { return db.pub.Add(counter, delta) }

// Counter returns a handle whose Add skips the look-up of the name. The error matches
// countmill.ErrInvalid.
func (db *DB) Counter(name string) (*publisher.Counter, error) { return db.pub.Counter(name) }

// Publish returns when all increments are on disk. Calls at the same time share a write. An
// increment with an ID counts once, however often it is repeated within the deduplication window. If
// ctx ends first, the error matches countmill.ErrOutcomeUnknown or says that nothing was counted.
func (db *DB) Publish(ctx context.Context, incs ...countmill.Increment) error {
	_, err := db.pub.Publish(ctx, incs...)
	return err
}

// Flush returns when every increment that was added before the call is on disk.
func (db *DB) Flush(ctx context.Context) error {
	_, err := db.pub.Flush(ctx)
	return err
}

// Handler serves the whole HTTP API of countmill: increments, totals, watches, changes, metrics,
// health; and the page at /. Mount it below a path with http.StripPrefix; /openapi.json describes it. It answers until
// Close ends, and streams end when Close begins. Set ReadTimeout and WriteTimeout of your server:
// the handler bounds the answer itself, and a watcher extends its own time.
//
// Without WithTokens or WithInsecure it refuses requests from other machines, and requests for
// another host name than localhost.
//
// http.ServeMux redirects paths with // and .. in them. Ask for such counter names with
// GET /v1/totals?counter=NAME.
func (db *DB) Handler() http.Handler { return db.app.Handler() }

// Collector has countmill's metrics, as docs/reference/metrics.md lists them, without countmill_build_info and
// those of the process. Register it once for each DB; to register two, wrap them with labels.
func (db *DB) Collector() prometheus.Collector { return db.app.Collector() }

// Stats counts since Open.
type Stats struct {
	Publisher  publisher.Stats
	Aggregator aggregator.Stats
	Reader     reader.Stats
}

// Stats returns the counts so far. They are not of one instant.
func (db *DB) Stats() Stats {
	return Stats{db.pub.Stats(), db.agg.Stats(), db.reader.Stats()}
}
