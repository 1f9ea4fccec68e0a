package backup

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"
)

// atOnce is how many files are sent or fetched at once. A guess.
const atOnce = 4

// A shipment is a copy of a store on its way to a target.
type shipment struct {
	dir      string // of the copy
	database string
	began    time.Time
	taken    time.Time
	sums     *sums
	limit    *rate.Limiter
}

// take sends the files that the target lacks, and then the manifest. The caller has the mark.
func (t target) take(ctx context.Context, s shipment) (b Backup, err error) {
	m := manifest{Format: format, Database: s.database, BeganAt: s.began.UTC(), TakenAt: s.taken.UTC()}
	if m.TakenAt, err = t.after(ctx, m.TakenAt); err != nil {
		return b, err
	}
	if m.Files, err = s.sums.files(ctx, s.dir, s.limit); err != nil {
		return b, err
	}
	b = Backup{BeganAt: m.BeganAt, TakenAt: m.TakenAt, Bytes: m.bytes()}
	if b.Sent, err = t.send(ctx, s, m.Files); err != nil {
		return b, err
	}
	var text []byte
	if b.ID, text, err = m.encode(); err != nil {
		return b, err
	}
	if err := t.has(ctx, m.Files); err != nil {
		return b, err
	}
	return b, t.put(ctx, t.name(manifests, b.ID), text) // every file is in the bucket
}

// has returns an error unless every file is in the bucket. Without that, a process that was suspended until its mark
// was out of date would name files that another one has removed since.
func (t target) has(ctx context.Context, files []file) error {
	stored, err := t.stored(ctx)
	if err != nil {
		return err
	}
	for _, f := range files {
		if size, ok := stored[f.SHA256]; !ok || size != f.Size {
			return fmt.Errorf("%s was removed or replaced in the place of the backups before the backup was whole", t.name(content, f.SHA256))
		}
	}
	return nil
}

// after returns a time after all backups of the target, so that the newest has the last name also when
// the clock went back.
func (t target) after(ctx context.Context, at time.Time) (time.Time, error) {
	found, err := t.list(ctx)
	if err != nil || len(found) == 0 {
		return at, err
	}
	if last := found[len(found)-1].TakenAt; !at.Truncate(time.Microsecond).After(last) {
		return last.Add(time.Microsecond), nil
	}
	return at, nil
}

// send puts the files that are not in the bucket, and returns their bytes. A file in the bucket has the
// checksum that is its name; one with another size is damaged, and is sent again.
func (t target) send(ctx context.Context, s shipment, files []file) (int64, error) {
	stored, err := t.stored(ctx)
	if err != nil {
		return 0, err
	}
	var sent atomic.Int64
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(atOnce)
	for _, f := range files {
		if size, ok := stored[f.SHA256]; ok && size == f.Size {
			continue
		}
		stored[f.SHA256] = f.Size // two files may have the same content
		g.Go(func() error {
			sent.Add(f.Size)
			return t.sendFile(ctx, s, f)
		})
	}
	err = g.Wait()
	return sent.Load(), err
}

func (t target) sendFile(ctx context.Context, s shipment, f file) error {
	in, err := os.Open(filepath.Join(s.dir, f.Name))
	if err != nil {
		return err
	}
	ctx, cancel := callTimeout(ctx, f.Size)
	defer cancel()
	err = t.bucket.Put(ctx, t.name(content, f.SHA256), newChecked(limited{ctx, in, s.limit}, f))
	if err = errors.Join(err, in.Close()); err != nil {
		return fmt.Errorf("%s: %w", f.Name, err)
	}
	return nil
}
