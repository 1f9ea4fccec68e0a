package backup

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"hash"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/time/rate"
)

// sums remembers the checksums of tables. A table never changes, and no other table gets its name while the
// store is open, so each is read once. It serves one backup at a time.
type sums struct{ of map[string]file }

// tables are the endings of files that never change once they are in a copy.
var tables = []string{".sst", ".blob"}

// files returns the files of a directory with their checksums. After an error a repeat reads no table again. It forgets
// files that are gone.
func (s *sums) files(ctx context.Context, dir string, limit *rate.Limiter) ([]file, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var all []file
	if s.of == nil {
		s.of = make(map[string]file)
	}
	there := make(map[string]bool)
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			return nil, err
		}
		f, known := s.of[e.Name()]
		if !known || f.Size != info.Size() {
			if f, err = sumOfFile(ctx, filepath.Join(dir, e.Name()), limit); err != nil {
				return nil, err
			}
		}
		if slices.Contains(tables, filepath.Ext(f.Name)) {
			s.of[f.Name] = f
		}
		there[f.Name] = true
		all = append(all, f)
	}
	maps.DeleteFunc(s.of, func(name string, _ file) bool { return !there[name] })
	return all, nil
}

func sumOfFile(ctx context.Context, name string, limit *rate.Limiter) (file, error) {
	in, err := os.Open(name)
	if err != nil {
		return file{}, err
	}
	sum := sha256.New()
	n, err := io.Copy(sum, limited{ctx, in, limit})
	return file{filepath.Base(name), n, hex.EncodeToString(sum.Sum(nil))}, errors.Join(err, in.Close())
}

// A checked reader ends with an error, in place of io.EOF, if its content is not that of the file.
type checked struct {
	from io.Reader
	want file
	sum  hash.Hash
	n    int64
}

func newChecked(from io.Reader, want file) *checked {
	return &checked{from: from, want: want, sum: sha256.New()}
}

func (c *checked) Read(p []byte) (int, error) {
	n, err := c.from.Read(p)
	c.sum.Write(p[:n])
	c.n += int64(n)
	if c.n > c.want.Size || err == io.EOF && (c.n != c.want.Size || hex.EncodeToString(c.sum.Sum(nil)) != c.want.SHA256) {
		return n, damagef("%s has other content: want %d bytes with SHA-256 %s, got %d bytes", c.want.Name, c.want.Size, c.want.SHA256, c.n)
	}
	return n, err
}

// A limited reader reads at most so many bytes a second, and ends with its ctx.
type limited struct {
	ctx   context.Context
	from  io.Reader
	limit *rate.Limiter
}

// chunk is the most bytes of one read.
const chunk = 256 << 10

func (l limited) Read(p []byte) (int, error) {
	p = p[:min(len(p), chunk)]
	if err := l.limit.WaitN(l.ctx, len(p)); err != nil { // ctx has ended, or will before its turn: the error is that end
		<-l.ctx.Done()
		return 0, l.ctx.Err()
	}
	return l.from.Read(p)
}

func newLimit(bytesPerSecond int) *rate.Limiter {
	return rate.NewLimiter(rate.Limit(bytesPerSecond), chunk)
}
