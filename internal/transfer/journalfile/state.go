package journalfile

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/countmill/countmill/internal/transfer"
	"github.com/countmill/countmill/store"
)

// The names of an export under way, after the name of its file.
const (
	partSuffix  = ".part"
	stateSuffix = ".countmill-export"
)

// A description is the first line of the state. Only an export with the same one goes on.
type description struct {
	Server   string    `json:"server"`
	Format   string    `json:"format"`
	Counters string    `json:"counters"`
	From     time.Time `json:"from"`
	To       time.Time `json:"to"`
	Version  string    `json:"version"`
}

// A place is a further line: the file up to an entry that is on the disk.
type place struct {
	Bytes   int64  `json:"bytes"`
	Entries int64  `json:"entries"`
	After   string `json:"after"` // the key of the entry
}

// files are the files of an export under way.
type files struct {
	part, state *os.File
}

func (f files) close() error {
	return errors.Join(f.part.Close(), f.state.Close())
}

// open goes on with the stopped export of path, or begins a new one.
func (x *Export) open(path string) (*output, error) {
	own := description{x.Server, x.Format.Name, x.Period.Counters, x.Period.From.UTC(), x.Period.To.UTC(), x.Version}
	last, length, err := loadState(path, own)
	if err != nil {
		return nil, err
	}
	flags := os.O_RDWR | os.O_CREATE
	if length == 0 {
		flags |= os.O_TRUNC // before there is a part: a state of an earlier file is not its state
	}
	out := &output{}
	if out.state, err = os.OpenFile(path+stateSuffix, flags, 0o644); err != nil {
		return nil, err
	}
	if out.part, err = os.OpenFile(path+partSuffix, os.O_RDWR|os.O_CREATE, 0o644); err != nil {
		_ = out.state.Close()
		return nil, err
	}
	if err := out.resume(x, own, last, length); err != nil {
		_ = out.close()
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return out, transfer.SyncDir(filepath.Dir(path))
}

// resume brings the files to the last place; nil if there is none. length is the bytes of the state up to there; 0 begins a
// new export.
func (o *output) resume(x *Export, own description, last *place, length int64) (err error) {
	o.w = o.part
	o.remember = o.append
	end := place{Bytes: int64(len(x.Format.Head))}
	if last != nil {
		end = *last
		if o.after, err = store.ParseJournalPlace("after", end.After); err != nil {
			return err
		}
	}
	if size, err := o.part.Seek(0, io.SeekEnd); err != nil {
		return err
	} else if last != nil && size < end.Bytes {
		return fmt.Errorf("%s has %d bytes, and %s says %d: remove both, and begin anew", o.part.Name(), size, o.state.Name(), end.Bytes)
	}
	if last == nil {
		if _, err := o.part.WriteAt(x.Format.Head, 0); err != nil {
			return err
		}
	}
	if err := errors.Join(cutOff(o.part, end.Bytes), cutOff(o.state, length)); err != nil {
		return err
	}
	o.size, o.entries, o.resumed = end.Bytes, end.Entries, end.Entries
	if length > 0 {
		return nil
	}
	return o.line(own)
}

// cutOff makes the end of a file the place of the next write.
func cutOff(f *os.File, length int64) error {
	_, err := f.Seek(length, io.SeekStart)
	return errors.Join(f.Truncate(length), err)
}

// append remembers a place once the bytes before it are on the disk.
func (o *output) append(p place) error {
	if err := o.part.Sync(); err != nil {
		return err
	}
	return o.line(p)
}

func (o *output) line(v any) error {
	line, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if _, err := o.state.Write(append(line, '\n')); err != nil {
		return err
	}
	return o.state.Sync()
}

// finish makes the written file path.
func (o *output) finish(path string) error {
	if err := errors.Join(o.part.Sync(), o.close()); err != nil {
		return err
	}
	if err := os.Rename(path+partSuffix, path); err != nil {
		return err
	}
	if err := transfer.SyncDir(filepath.Dir(path)); err != nil {
		return err
	}
	return os.Remove(path + stateSuffix)
}

// loadState returns the last place of an export that was stopped, and the bytes of its state up to the last whole line.
// Without such an export both are zero.
func loadState(path string, own description) (last *place, length int64, err error) {
	if _, err := os.Stat(path + partSuffix); errors.Is(err, fs.ErrNotExist) {
		return nil, 0, nil // the file was renamed, and the state is left
	}
	f, err := os.Open(path + stateSuffix)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, 0, fmt.Errorf("%s is in the way, and is no export under way: remove it", path+partSuffix)
	}
	if err != nil {
		return nil, 0, err
	}
	defer f.Close()
	lines := bufio.NewReader(f)
	for first := true; ; first = false {
		line, err := lines.ReadSlice('\n')
		if errors.Is(err, io.EOF) { // also a line that is cut off
			return last, length, nil
		}
		if err != nil {
			return nil, 0, fmt.Errorf("%s: %w", f.Name(), err)
		}
		if last, err = parse(line, first, own); err != nil {
			return nil, 0, fmt.Errorf("%s %w: remove it and %s to begin anew, or name another --output", f.Name(), err, path+partSuffix)
		}
		length += int64(len(line))
	}
}

// parse takes one line of the state.
func parse(line []byte, first bool, own description) (*place, error) {
	if first {
		var other description
		if json.Unmarshal(line, &other) != nil {
			return nil, errors.New("is not the state of an export")
		}
		if other != own {
			return nil, fmt.Errorf("is of another export (%s)", line[:len(line)-1])
		}
		return nil, nil
	}
	p := new(place)
	if json.Unmarshal(line, p) != nil || p.After == "" {
		return nil, errors.New("is damaged")
	}
	return p, nil
}
