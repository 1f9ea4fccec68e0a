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

	quotas quotas
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
	set, err := load(path)
	if err != nil {
		return nil, err
	}
	t.set.Store(set)
	return t, nil
}

// load reads no more than a file may hold, and nothing that could block.
func load(path string) (*tokenSet, error) {
	text, err := readFile(path)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			err = errors.New("there is no such file; `countmill token new` says what belongs into it")
		}
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	tokens, err := Parse(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return &tokenSet{text, tokens}, nil
}

func readFile(path string) ([]byte, error) {
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

// Watch reads the file again every so often until ctx ends. It is read, not asked for
// its time: two versions can share a time and a size. A file that is not good changes
// nothing but Err.
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
	}
}

// Reload reads the file once.
func (t *Tokens) Reload(ctx context.Context) {
	set, err := load(t.path)
	if err != nil {
		if was := t.Err(); was == nil || was.Error() != err.Error() {
			t.log.LogAttrs(ctx, slog.LevelError, "tokens not taken over, those of before stay in force",
				slog.Any("err", err), slog.Int("tokens", t.Len()))
		}
		t.bad.Store(&err)
		return
	}
	mended := t.bad.Swap(nil) != nil
	changed := !bytes.Equal(set.text, t.set.Load().text)
	if changed {
		t.set.Store(set)
	}
	if changed || mended {
		t.log.LogAttrs(ctx, slog.LevelInfo, "tokens taken over", slog.Int("tokens", len(set.tokens)))
	}
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
	set := t.set.Load()
	found := set.find(hash)
	switch {
	case found == nil:
		return Caller{}, ErrUnknown
	case found.expired(time.Now()):
		return Caller{}, ErrExpired
	}
	return Caller{Name: found.Name, token: found, tokens: t, quota: t.quotas.get(found, set.has)}, nil
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

func (s *tokenSet) has(hash [sha256.Size]byte) bool { return s.find(hash) != nil }

// current reports whether the token is in force with the rights it had.
func (t *Tokens) current(token *Token) bool {
	now := t.set.Load().find(token.hash)
	return now != nil && (now == token || now.Line() == token.Line()) && !now.expired(time.Now())
}
