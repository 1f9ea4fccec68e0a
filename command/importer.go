package command

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/countmill/countmill/internal/app"
	"github.com/countmill/countmill/internal/transfer"
)

const (
	// senders is how many blocks are under way at once. A guess: a server that waits
	// for its bus or its disk takes several together.
	senders = 4

	// badShown is how many bad rows are named one by one.
	badShown = 10
)

// An importer counts the rows of one file.
type importer struct {
	call
	client    *client
	timeout   time.Duration
	window    time.Duration
	name      string
	format    transfer.Format
	rejects   string // empty: a bad row refuses the file
	statePath string
	// sameCaller says that the token is of the caller who began the import.
	sameCaller bool

	file  *os.File
	size  int64
	state importState
	fresh bool // this is the first import of the file
	done  imported

	mu sync.Mutex // for what done says of conflicts, while blocks are sent

	progress *progress
	accepted atomic.Int64
	maybe    atomic.Bool // a request without an answer may have been counted
}

func (im *importer) run(ctx context.Context) (*imported, error) {
	var spooled bool
	var err error
	if im.file, spooled, err = openRows(ctx, im.call, im.name); err != nil {
		return nil, fmt.Errorf("%s: %w; nothing was counted", im.name, err)
	}
	defer im.file.Close()
	info, err := im.file.Stat()
	if err != nil {
		return nil, err
	}
	im.size = info.Size() // a file that grows is imported as it is now
	if im.statePath == "" && !spooled {
		im.statePath = im.name + stateSuffix
	}
	if err := im.begin(); err != nil {
		return nil, err
	}
	if err := im.check(ctx); err != nil {
		return nil, err
	}
	if err := im.remember(); err != nil {
		return nil, err
	}
	if err := im.send(ctx); err != nil {
		return nil, im.stopped(ctx, err)
	}
	im.done.Accepted = im.accepted.Load()
	return &im.done, im.finish()
}

// begin finds out when the import of this file began.
func (im *importer) begin() error {
	now := time.Now().UTC().Truncate(time.Second)
	var err error
	im.state, im.fresh, err = loadState(im.statePath, now)
	if err != nil {
		return err
	}
	if im.state.Cut != transfer.Cut {
		return fmt.Errorf("%s is of another version of countmill, which cuts files in another way: finish the import with that one", im.statePath)
	}
	if age := now.Sub(im.state.Began); age > im.window {
		return fmt.Errorf("the import of %s began %s, longer ago than the server remembers (--dedup-window %s), and %s (%s): nothing was counted now. "+
			"Remove that file only if all rows are to count again", im.name, im.state.Began.Format(time.RFC3339), im.window, im.state.ending(), im.statePath)
	}
	return nil
}

// check reads the whole file before anything is counted.
func (im *importer) check(ctx context.Context) error {
	rejects, err := newRejects(im.rejects, im.file)
	if err != nil {
		return err
	}
	im.progress = startProgress(im.stderr, "checking", "rows", im.size)
	sum, bad, err := im.checkRows(ctx, rejects)
	im.progress.stop()
	if err := errors.Join(err, rejects.close()); err != nil {
		return fmt.Errorf("%s: %w; nothing was counted", im.name, err)
	}
	im.done = imported{File: im.name, SHA256: sum, Began: im.state.Began, Repeated: !im.fresh,
		Rows: im.progress.count.Load(), LeftOut: bad.n, Rejects: im.rejects}
	if bad.n == 0 || im.rejects != "" {
		return nil
	}
	if bad.n > 1 {
		for _, line := range bad.shown {
			fmt.Fprintf(im.stderr, "%s: %s\n", im.name, line)
		}
	}
	return fmt.Errorf("%s: %s; %d of %d rows cannot be counted, and nothing was: mend them, or leave them out with --skip-bad REJECTS",
		im.name, bad.shown[0], bad.n, im.done.Rows)
}

// badRows are some of them, as lines for people.
type badRows struct {
	n     int64
	shown []string
}

func (im *importer) checkRows(ctx context.Context, rejects *rejects) (sum string, bad badRows, err error) {
	err = im.each(ctx, func(b *transfer.Block) error {
		for _, row := range b.Bad {
			if bad.n++; len(bad.shown) < badShown {
				bad.shown = append(bad.shown, fmt.Sprintf("line %d: %v", row.Line, row.Err))
			}
			if err := rejects.add(row); err != nil {
				return err
			}
		}
		im.progress.add(int64(b.Size), int64(b.Rows))
		return nil
	}, &sum)
	return sum, bad, err
}

// each reads the file's blocks. sum becomes the hash of what was read.
func (im *importer) each(ctx context.Context, do func(*transfer.Block) error, sum *string) error {
	if _, err := im.file.Seek(0, io.SeekStart); err != nil {
		return err
	}
	hash := sha256.New()
	reader, err := transfer.NewReader(io.TeeReader(io.LimitReader(im.file, im.size), hash), im.format, im.state.Began, im.window)
	if err != nil {
		return err
	}
	blocks := transfer.NewBlocks(reader)
	for {
		b, err := blocks.Next()
		if errors.Is(err, io.EOF) {
			*sum = hex.EncodeToString(hash.Sum(nil))
			return nil
		}
		if err != nil {
			return err
		}
		if ctx.Err() != nil {
			return errInterrupted
		}
		if err := do(b); err != nil {
			return err
		}
	}
}

var errInterrupted = errors.New("interrupted")

// remember writes down when the import began, before anything is counted.
func (im *importer) remember() error {
	if !im.fresh && im.state.SHA256 != im.done.SHA256 {
		return fmt.Errorf("%s is not what it was when its import began %s (%s): rows that were counted then would count again, so nothing was counted now. "+
			"Restore it, or put new rows into a file of their own", im.name, im.state.Began.Format(time.RFC3339), im.statePath)
	}
	if token := hashToken(im.client.token); im.fresh || im.sameCaller {
		im.state.Token = token
	} else if token != im.state.Token {
		return fmt.Errorf("the import of %s began with another token (%s), and an Idempotency-Key belongs to the token's name: rows could count again, so nothing was counted now. "+
			"If both tokens have one name, say --same-caller", im.name, im.statePath)
	}
	im.state.SHA256 = im.done.SHA256
	if err := im.state.save(im.statePath); err != nil {
		return fmt.Errorf("%w; nothing was counted. --state names another place", err)
	}
	return nil
}

func (im *importer) finish() error {
	im.state.Finished = time.Now().UTC().Truncate(time.Second)
	if err := im.state.save(im.statePath); err != nil {
		return fmt.Errorf("all %d rows of %s are counted, but %w", im.done.Accepted, im.name, err)
	}
	return nil
}

// send sends all blocks, some at a time.
func (im *importer) send(ctx context.Context) error {
	im.progress = startProgress(im.stderr, "importing", "rows", im.size)
	defer im.progress.stop()
	g, ctx := errgroup.WithContext(ctx)
	blocks := make(chan *transfer.Block)
	var sum string
	g.Go(func() error {
		defer close(blocks)
		return im.each(ctx, func(b *transfer.Block) error {
			select {
			case blocks <- b:
				return nil
			case <-ctx.Done():
				return errInterrupted
			}
		}, &sum)
	})
	for range senders {
		g.Go(func() error {
			for b := range blocks {
				if err := im.sendBlock(ctx, b); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	if sum != im.done.SHA256 {
		return fmt.Errorf("%s changed while it was read: what is counted is neither what it was nor what it is", im.name)
	}
	return nil
}

// stopped says what became of the rows.
func (im *importer) stopped(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		err = errInterrupted
	}
	accepted := im.accepted.Load()
	if accepted == 0 && !im.maybe.Load() {
		if im.fresh && im.statePath != "" {
			_ = os.Remove(im.statePath) // it would only say that nothing was counted
		}
		return fmt.Errorf("%s: nothing was counted: %w", im.name, err)
	}
	others := ""
	if im.maybe.Load() {
		others = ", and perhaps some more"
	}
	return fmt.Errorf("%s: %d of %d rows are counted%s: %w. Run it again with the same rows: what was counted is not counted again",
		im.name, accepted, im.done.Rows, others, err)
}

// checkSame refuses to write over what is being read.
func checkSame(path string, file *os.File) error {
	a, err := os.Stat(path)
	if err != nil {
		return nil // not there: it is going to be made
	}
	b, err := file.Stat()
	if err == nil && os.SameFile(a, b) {
		return app.Usagef("--skip-bad: %s is the file that is imported", path)
	}
	return err
}
