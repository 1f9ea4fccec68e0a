package transfer

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

	"github.com/countmill/countmill/client"
	"github.com/countmill/countmill/store"
)

const (
	// senders is how many blocks are under way at once. A guess: a server that waits
	// for its bus or its disk takes several together.
	senders = 4

	// BadShown is how many bad rows, or counters, are named one by one.
	BadShown = 10
)

// An Import counts the rows of one file, each once, whatever happens on the way.
type Import struct {
	Client  *client.Client
	Token   string        // that Client sends; the state file has its hash
	Timeout time.Duration // of a block, repeats included
	Window  time.Duration // the server's deduplication window
	Name    string        // of the file; - for Stdin
	Form    Form
	Rejects string // file for bad rows; empty: a bad row refuses the file
	State   string // file that remembers the import. Default: the name with StateSuffix, none for Stdin.
	// Complete is a period of which the file has every increment of every counter of its rules; zero if nobody knows. The
	// rules remember it, so that its rows in series are not partial.
	Complete store.Period
	// SameCaller says that the token is of the caller who began the import.
	SameCaller bool

	// DryRun gets the increments that would be counted, as NDJSON, and then none is. Nil: they are counted.
	DryRun io.Writer

	Stdin    io.Reader
	Stderr   io.Writer // for the first bad rows, and the reason to wait
	Progress StartProgress
}

// A Progress shows how far a transfer is. Its methods may be called at the same time.
type Progress interface {
	Add(done, count int64) // more is done: of the total, and of the rows or counters
	Wait(why string)
	Stop()
}

// StartProgress begins to show a progress, such as "importing" of "rows". total is 0 if unknown.
type StartProgress func(verb, what string, total int64) Progress

// Imported is the result of an import.
type Imported struct {
	File     string    `json:"file"`
	SHA256   string    `json:"sha256"`
	Began    time.Time `json:"began"`    // the first import of this file
	Repeated bool      `json:"repeated"` // it was not this one
	Rows     int64     `json:"rows"`
	Accepted int64     `json:"accepted"`
	LeftOut  int64     `json:"left_out"`
	Rejects  string    `json:"rejects,omitempty"`

	Conflicts int64    `json:"conflicts,omitempty"` // rows that were not counted: other deltas had their ids
	Reused    []string `json:"conflicting,omitempty"`
}

// Run counts the rows. Rows that were dropped for their ids are no error.
func (i Import) Run(ctx context.Context) (*Imported, error) {
	im := &importer{Import: i}
	return im.run(ctx)
}

// An importer is an import under way.
type importer struct {
	Import

	file  *os.File
	size  int64
	state importState
	fresh bool // this is the first import of the file
	done  Imported
	// oldest is the first time in a request: Began, or that of a row.
	oldest time.Time

	history *history // nil without Form.Series

	mu sync.Mutex // for the conflicts in done, while blocks are sent

	progress Progress
	accepted atomic.Int64
	maybe    atomic.Bool // a request without an answer may have been counted
}

func (im *importer) run(ctx context.Context) (*Imported, error) {
	var spooled bool
	var err error
	if im.file, spooled, err = openRows(ctx, im.Stdin, im.Name); err != nil {
		return nil, fmt.Errorf("%s: %w; nothing was counted", im.Name, err)
	}
	defer im.file.Close()
	info, err := im.file.Stat()
	if err != nil {
		return nil, err
	}
	im.size = info.Size() // a file that grows is imported as it is now
	if im.State == "" && !spooled {
		im.State = im.Name + StateSuffix
	}
	if err := im.begin(); err != nil {
		return nil, err
	}
	if err := im.check(ctx); err != nil {
		return nil, err
	}
	if err := im.late(); err != nil {
		return nil, err
	}
	if im.DryRun != nil {
		return &im.done, im.show(ctx)
	}
	if err := im.history.join(im.Complete); err != nil {
		return nil, fmt.Errorf("%s: %w; nothing was counted", im.Name, err)
	}
	if err := im.history.wait(ctx, im.Stderr); err != nil {
		return nil, fmt.Errorf("%s: %w; nothing was counted", im.Name, err)
	}
	if err := im.remember(); err != nil {
		return nil, err
	}
	if err := im.send(ctx); err != nil {
		return nil, im.stopped(ctx, err)
	}
	im.done.Accepted = im.accepted.Load()
	if err := im.fill(ctx); err != nil {
		return nil, err
	}
	return &im.done, im.finish()
}

// begin finds out when the import of this file began.
func (im *importer) begin() error {
	now := time.Now().UTC().Truncate(time.Second)
	var err error
	im.state, im.fresh, err = loadState(im.State, now)
	if err != nil {
		return err
	}
	if im.state.Cut != Cut {
		return fmt.Errorf("%s is of another version of countmill, which cuts files in another way: finish the import with that one", im.State)
	}
	form := im.Form.String()
	if im.fresh {
		im.state.Form = form
	}
	if im.state.Form != form {
		return fmt.Errorf("the import of %s began with %s, and not with %s (%s): rows could count twice, so nothing was counted now. "+
			"To count other columns of the file as well, name another --state", im.Name, im.state.Form, form, im.State)
	}
	im.oldest = im.state.Began
	return im.late()
}

// uncounted says how to count the rest of a file that cannot be sent again.
const uncounted = "Put rows that are not counted into a file of their own, without times or with --series"

// late returns an error if the server refuses requests of the import because of their age.
func (im *importer) late() error {
	switch began := im.state.Began; {
	case time.Since(im.oldest) <= im.Window:
		return nil
	case im.oldest.Before(began):
		return fmt.Errorf("%s has rows of %s, which the server takes no longer (--dedup-window %s). Its import began %s, and %s: nothing was counted now. "+uncounted,
			im.Name, im.oldest.UTC().Format(time.RFC3339), im.Window, began.Format(time.RFC3339), im.state.ending())
	default:
		return fmt.Errorf("the import of %s began %s, longer ago than the server remembers (--dedup-window %s), and %s (%s): nothing was counted now. "+
			"Remove that file only if all rows are to count again", im.Name, began.Format(time.RFC3339), im.Window, im.state.ending(), im.State)
	}
}

// check reads the whole file before anything is counted.
func (im *importer) check(ctx context.Context) error {
	rejects, err := newRejects(im.Rejects, im.file)
	if err != nil {
		return err
	}
	if err := im.askRules(ctx); err != nil {
		return errors.Join(err, rejects.close())
	}
	im.progress = im.Progress("checking", "rows", im.size)
	sum, bad, err := im.checkRows(ctx, rejects)
	im.progress.Stop()
	if err := errors.Join(err, rejects.close()); err != nil {
		return fmt.Errorf("%s: %w; nothing was counted", im.Name, err)
	}
	im.done = Imported{File: im.Name, SHA256: sum, Began: im.state.Began, Repeated: !im.fresh,
		Rows: im.done.Rows, LeftOut: bad.n, Rejects: im.Rejects}
	if bad.n == 0 || im.Rejects != "" {
		if bad.missing > 0 && im.Complete != (store.Period{}) {
			return fmt.Errorf("%s: %d of the rows left out (%s) may be of the period of --complete, and nothing was counted: fix them, or name a period without them",
				im.Name, bad.missing, im.Rejects)
		}
		return nil
	}
	if bad.n > 1 {
		for _, line := range bad.shown {
			fmt.Fprintf(im.Stderr, "%s: %s\n", im.Name, line)
		}
	}
	return fmt.Errorf("%s: %s; %d of %d rows cannot be counted, and nothing was: fix them, or leave them out with --skip-bad REJECTS",
		im.Name, bad.shown[0], bad.n, im.done.Rows)
}

// badRows are some of them, as lines for people.
type badRows struct {
	n       int64
	missing int64 // of them, in the period of Complete, or without a readable time
	shown   []string
}

func (im *importer) checkRows(ctx context.Context, rejects *rejects) (sum string, bad badRows, err error) {
	err = im.each(ctx, func(b *Block) error {
		for _, row := range b.Bad {
			if bad.n++; len(bad.shown) < BadShown {
				bad.shown = append(bad.shown, fmt.Sprintf("line %d: %v", row.Line, row.Err))
			}
			if at := row.Inc.Time; at.IsZero() || im.Complete.Has(at, at) {
				bad.missing++
			}
			if err := rejects.add(row); err != nil {
				return err
			}
		}
		if err := im.history.note(b); err != nil {
			return err
		}
		for _, inc := range b.Good {
			if !inc.Time.IsZero() && inc.Time.Before(im.oldest) {
				im.oldest = inc.Time
			}
		}
		im.done.Rows += int64(b.Rows)
		im.progress.Add(int64(b.Size), int64(b.Rows))
		return nil
	}, &sum)
	return sum, bad, err
}

// each reads the file's blocks. sum becomes the hash of the bytes read.
func (im *importer) each(ctx context.Context, do func(*Block) error, sum *string) error {
	if _, err := im.file.Seek(0, io.SeekStart); err != nil {
		return err
	}
	hash := sha256.New()
	check := Within(im.state.Began, im.Window)
	if im.Form.Series {
		check = im.history.past(im.state.Began)
	}
	reader, err := NewReader(io.TeeReader(io.LimitReader(im.file, im.size), hash), im.Form, check)
	if err != nil {
		return err
	}
	blocks := NewBlocks(reader, im.Form.Series)
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
			return ErrInterrupted
		}
		if err := do(b); err != nil {
			return err
		}
	}
}

// ErrInterrupted is matched by the error of a transfer whose context ended.
var ErrInterrupted = errors.New("interrupted")

// show writes the increments of all blocks.
func (im *importer) show(ctx context.Context) error {
	var sum string
	return im.each(ctx, func(b *Block) error {
		var rows []byte
		for _, inc := range b.Good {
			if !b.At.IsZero() {
				inc.Time = b.At
			}
			rows = appendRow(rows, inc)
			im.done.Accepted++
		}
		_, err := im.DryRun.Write(rows)
		return err
	}, &sum)
}

// remember writes down when the import began, before anything is counted.
func (im *importer) remember() error {
	if !im.fresh && im.state.SHA256 != im.done.SHA256 {
		return fmt.Errorf("%s has changed since its import began %s (%s): rows counted then would count again, so nothing was counted now. "+
			"Restore it, or put new rows into a file of their own", im.Name, im.state.Began.Format(time.RFC3339), im.State)
	}
	if token := hashToken(im.Token); im.fresh || im.SameCaller {
		im.state.Token = token
	} else if token != im.state.Token {
		return fmt.Errorf("the import of %s began with another token (%s), and an Idempotency-Key belongs to the token's name: rows could count again, so nothing was counted now. "+
			"If both tokens have one name, say --same-caller", im.Name, im.State)
	}
	im.state.SHA256 = im.done.SHA256
	if err := SaveState(im.State, im.state); err != nil {
		return fmt.Errorf("%w; nothing was counted. --state names another place", err)
	}
	return nil
}

func (im *importer) finish() error {
	im.state.Finished, im.state.Left = time.Now().UTC().Truncate(time.Second), im.done.LeftOut+im.done.Conflicts
	if err := SaveState(im.State, im.state); err != nil {
		return fmt.Errorf("all %d rows of %s are counted, but %w", im.done.Accepted, im.Name, err)
	}
	return nil
}

// send sends all blocks, some at a time.
func (im *importer) send(ctx context.Context) error {
	im.progress = im.Progress("importing", "rows", im.size)
	defer im.progress.Stop()
	g, ctx := errgroup.WithContext(ctx)
	blocks := make(chan *Block)
	var sum string
	g.Go(func() error {
		defer close(blocks)
		return im.each(ctx, func(b *Block) error {
			select {
			case blocks <- b:
				return nil
			case <-ctx.Done():
				return ErrInterrupted
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
		return fmt.Errorf("%s changed during the import: the counted rows are a mixture of both versions", im.Name)
	}
	return nil
}

// stopped says what became of the rows.
func (im *importer) stopped(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		err = ErrInterrupted
	}
	accepted := im.accepted.Load()
	if accepted == 0 && !im.maybe.Load() {
		if im.fresh && im.State != "" {
			_ = os.Remove(im.State) // it would only say that nothing was counted
		}
		return fmt.Errorf("%s: nothing was counted: %w", im.Name, err)
	}
	others := ""
	if im.maybe.Load() {
		others = ", and perhaps some more"
	}
	then := "Run it again with the same rows: counted rows do not count again"
	if im.late() != nil {
		then = uncounted
	}
	return fmt.Errorf("%s: %d of %d rows are counted%s: %w. %s", im.Name, accepted, im.done.Rows, others, err, then)
}

// ErrSameFile is matched by the error of an import whose bad rows would replace its rows.
var ErrSameFile = errors.New("is the file that is imported")

// checkSame refuses to write over the file that is read.
func checkSame(path string, file *os.File) error {
	a, err := os.Stat(path)
	if err != nil {
		return nil // not there: it is going to be made
	}
	b, err := file.Stat()
	if err == nil && os.SameFile(a, b) {
		return fmt.Errorf("--skip-bad: %s %w", path, ErrSameFile)
	}
	return err
}
