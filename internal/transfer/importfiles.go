package transfer

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
)

// maxSpool is how much of standard input is copied to a temporary file.
const maxSpool = 4 << 30

// spool copies r to a temporary file and removes the file's name, so that the file disappears
// with the process.
func spool(ctx context.Context, r io.Reader, limit int64) (*os.File, error) {
	f, err := os.CreateTemp("", "countmill-import-")
	if err != nil {
		return nil, err
	}
	copied := make(chan error, 1)
	go func() {
		n, err := io.Copy(f, io.LimitReader(r, limit+1))
		if err == nil && n > limit {
			err = fmt.Errorf("it is too long to be copied to a temporary file (limit: %d bytes): import a plain file", limit)
		}
		copied <- err
	}()
	select {
	case err = <-copied:
	case <-ctx.Done(): // a read of a terminal cannot be ended; the process is about to
		err = ErrInterrupted
	}
	if err := errors.Join(err, os.Remove(f.Name())); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// rejects is where bad rows are written; nil: nowhere.
type rejects struct {
	file *os.File
	buf  *bufio.Writer
	enc  *json.Encoder
}

func newRejects(path string, reading *os.File) (*rejects, error) {
	if path == "" {
		return nil, nil
	}
	if err := checkSame(path, reading); err != nil {
		return nil, err
	}
	f, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	r := &rejects{file: f, buf: bufio.NewWriter(f)}
	r.enc = json.NewEncoder(r.buf)
	r.enc.SetEscapeHTML(false)
	return r, nil
}

func (r *rejects) add(row Row) error {
	if r == nil {
		return nil
	}
	return r.enc.Encode(struct {
		Line   int    `json:"line"`
		Reason string `json:"reason"`
		Row    string `json:"row"`
	}{row.Line, row.Err.Error(), row.Text})
}

func (r *rejects) close() error {
	if r == nil {
		return nil
	}
	return errors.Join(r.buf.Flush(), r.file.Sync(), r.file.Close())
}

// openRows opens the file to import. It copies a stream first, as that cannot be read twice.
func openRows(ctx context.Context, stdin io.Reader, name string) (file *os.File, spooled bool, err error) {
	if name == "-" {
		file, err = spool(ctx, stdin, maxSpool)
		return file, true, err
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, false, err
	}
	info, err := f.Stat()
	switch {
	case err == nil && info.Mode().IsRegular():
		return f, false, nil
	case err == nil && info.IsDir():
		err = fmt.Errorf("%s is a directory", name)
	case err == nil:
		file, err = spool(ctx, f, maxSpool)
	}
	_ = f.Close() // it was only read
	return file, true, err
}
