package access

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"runtime"
	"sync/atomic"
	"time"
)

// Why a token is not taken.
var (
	ErrUnknown = errors.New("this token is not known")
	ErrExpired = errors.New("this token has expired")
)

// Tokens are those of a file, as it was when it last was good.
type Tokens struct {
	path string
	log  *slog.Logger
	set  atomic.Pointer[tokenSet]
	bad  atomic.Pointer[error] // what is wrong with the file now; nil for nothing

	emptied atomic.Bool // the file was found without tokens, once so far
}

type tokenSet struct {
	text   []byte
	tokens []Token
}

// Open reads a file. Watch keeps up with it. A nil log discards.
func Open(path string, log *slog.Logger) (*Tokens, error) {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	t := &Tokens{path: path, log: log}
	set, err := load(path, nil)
	if err != nil {
		return nil, err
	}
	t.set.Store(set)
	t.warnEmpty(context.Background())
	return t, nil
}

// load returns was where the file has its text.
func load(path string, was *tokenSet) (*tokenSet, error) {
	text, err := ReadFile(path)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			err = errors.New("there is no such file; `countmill token new` says what belongs into it")
		}
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if was != nil && bytes.Equal(text, was.text) {
		return was, nil
	}
	tokens, err := Parse(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	set := &tokenSet{text, tokens}
	set.keepQuotas(was, time.Now())
	return set, nil
}

// ReadFile reads a file of tokens. It refuses a file that other users can write: they could
// add tokens of their own. It reads at most the largest allowed size, and nothing that could
// block.
func ReadFile(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, plain(err)
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("it is no file")
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, plain(err)
	}
	defer f.Close()
	if info, err = f.Stat(); err != nil { // that above may be of another file by now
		return nil, plain(err)
	}
	if mode := info.Mode().Perm(); mode&0o022 != 0 && runtime.GOOS != "windows" { // which has no such modes
		return nil, fmt.Errorf("its mode is %04o: others than its owner can write it: chmod go-w", mode)
	}
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	return text, plain(err)
}

// plain is the error without the path, which is said once.
func plain(err error) error {
	if perr, ok := errors.AsType[*fs.PathError](err); ok {
		return perr.Err
	}
	return err
}

// againAfter is how long a file has to be without tokens: an editor that saves may empty
// it first. A guess.
const againAfter = 500 * time.Millisecond

// Watch reads the file again every so often until ctx ends. It is read, not asked for
// its time: two versions can share a time and a size. A file that is not good changes
// nothing but Err. A file without tokens, seen twice, againAfter apart, revokes all of them.
func (t *Tokens) Watch(ctx context.Context, every time.Duration) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			t.Reload(ctx)
		}
		if t.emptied.Load() {
			select {
			case <-ctx.Done():
			case <-time.After(againAfter):
				t.Reload(ctx)
			}
		}
	}
}

// Reload reads the file once.
func (t *Tokens) Reload(ctx context.Context) {
	set, err := load(t.path, t.set.Load())
	if err != nil {
		if was := t.Err(); was == nil || was.Error() != err.Error() {
			t.log.LogAttrs(ctx, slog.LevelError, "tokens not taken over, those of before stay in force",
				slog.Any("err", err), slog.Int("tokens", t.Len()))
		}
		t.bad.Store(&err)
		t.emptied.Store(false)
		return
	}
	if len(set.tokens) == 0 && t.Len() > 0 && !t.emptied.Swap(true) {
		return
	}
	t.emptied.Store(false)
	mended := t.bad.Swap(nil) != nil
	if t.set.Swap(set) == set && !mended {
		return
	}
	if !t.warnEmpty(ctx) {
		t.log.LogAttrs(ctx, slog.LevelInfo, "tokens taken over", slog.Int("tokens", len(set.tokens)))
	}
}

// warnEmpty logs and reports that no token is in force.
func (t *Tokens) warnEmpty(ctx context.Context) bool {
	if t.Len() > 0 {
		return false
	}
	t.log.LogAttrs(ctx, slog.LevelWarn, "the file holds no token, so every call is refused; `countmill token new` makes one")
	return true
}

// Err says what is wrong with the file as it is now; nil for nothing.
func (t *Tokens) Err() error {
	if err := t.bad.Load(); err != nil {
		return *err
	}
	return nil
}

// Len is how many tokens are in force, expired ones included.
func (t *Tokens) Len() int { return len(t.set.Load().tokens) }

// Authenticate returns whose secret it is. The time it takes tells nothing of how much
// of it is right.
func (t *Tokens) Authenticate(secret string) (Caller, error) {
	if len(secret) > maxSecret {
		return Caller{}, ErrUnknown
	}
	hash := sha256.Sum256([]byte(secret))
	found := t.set.Load().find(hash)
	switch {
	case found == nil:
		return Caller{}, ErrUnknown
	case found.expired(time.Now()):
		return Caller{}, ErrExpired
	}
	return Caller{Name: found.Name, token: found, tokens: t}, nil
}

// find compares with every token, and every one to its end.
func (s *tokenSet) find(hash [sha256.Size]byte) *Token {
	at := -1
	for i := range s.tokens {
		at = subtle.ConstantTimeSelect(subtle.ConstantTimeCompare(s.tokens[i].hash[:], hash[:]), i, at)
	}
	if at < 0 {
		return nil
	}
	return &s.tokens[at]
}

// current reports whether the token is in force with the rights it had.
func (t *Tokens) current(token *Token) bool {
	now := t.set.Load().find(token.hash)
	return now != nil && (now == token || now.Line() == token.Line()) && !now.expired(time.Now())
}
