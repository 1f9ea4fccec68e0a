package auth

import (
	"bytes"
	"cmp"
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

	"github.com/countmill/countmill/internal/clock"
)

// The reasons for refusing a token.
var (
	ErrUnknown = errors.New("this token is not known")
	ErrExpired = errors.New("this token has expired")
)

// Tokens are the tokens of a file, from the last time that the file was valid.
type Tokens struct {
	path string
	log  *slog.Logger
	set  atomic.Pointer[tokenSet]
	bad  atomic.Pointer[error] // the present error of the file; nil if it is valid

	emptied atomic.Bool // the file was found without tokens, once so far
}

type tokenSet struct {
	text   []byte
	tokens []Token
}

// Open reads a file. Watch follows its changes. A nil log discards.
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

// load returns was if the file has the same text.
func load(path string, was *tokenSet) (*tokenSet, error) {
	text, err := ReadFile(path)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			err = errors.New("there is no such file; `countmill token new` prints a line for it")
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
	set.keep(was, time.Now())
	return set, nil
}

// ReadFile reads a file of tokens. It refuses a file that other users can write, because they could add
// tokens of their own. It reads at most the largest allowed size, and refuses files that could block.
func ReadFile(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, plain(err)
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("it is not a regular file")
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, plain(err)
	}
	defer f.Close()
	if info, err = f.Stat(); err != nil { // the check above may have been of another file
		return nil, plain(err)
	}
	if mode := info.Mode().Perm(); mode&0o022 != 0 && runtime.GOOS != "windows" { // Windows has no file modes
		return nil, fmt.Errorf("its mode is %04o, so other users can write it: chmod go-w", mode)
	}
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	return text, plain(err)
}

// plain returns the error without the path, which the message has already.
func plain(err error) error {
	if perr, ok := errors.AsType[*fs.PathError](err); ok {
		return perr.Err
	}
	return err
}

// againAfter is how long a file must be without tokens before that counts: an editor that saves may
// empty it first. A guess.
const againAfter = 500 * time.Millisecond

// Watch reads the file every so often until ctx ends. It compares the text and not the time: two
// versions can have the same time and size. An invalid file changes only Err. A file without tokens
// revokes all of them, if it is still without tokens after againAfter.
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
		if t.emptied.Load() && clock.Sleep(ctx, againAfter) {
			t.Reload(ctx)
		}
	}
}

// Reload reads the file once.
func (t *Tokens) Reload(ctx context.Context) {
	set, err := load(t.path, t.set.Load())
	if err != nil {
		if was := t.Err(); was == nil || was.Error() != err.Error() {
			t.log.LogAttrs(ctx, slog.LevelError, "token file is invalid, the previous tokens stay valid",
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
		t.log.LogAttrs(ctx, slog.LevelInfo, "tokens reloaded", slog.Int("tokens", len(set.tokens)))
	}
}

// warnEmpty reports whether the file has no token, and logs that.
func (t *Tokens) warnEmpty(ctx context.Context) bool {
	if t.Len() > 0 {
		return false
	}
	t.log.LogAttrs(ctx, slog.LevelWarn, "the file contains no token, so every call is refused; `countmill token new` makes one")
	return true
}

// Err returns the present error of the file; nil if it is valid.
func (t *Tokens) Err() error {
	if err := t.bad.Load(); err != nil {
		return *err
	}
	return nil
}

// Len returns the number of tokens, including expired ones.
func (t *Tokens) Len() int { return len(t.set.Load().tokens) }

// Authenticate returns the caller with this secret. Its time does not depend on how much of the secret
// is right.
func (t *Tokens) Authenticate(secret string) (Caller, error) {
	if len(secret) > maxSecret {
		return Caller{}, ErrUnknown
	}
	hash := sha256.Sum256([]byte(secret))
	found := t.set.Load().find(hash)
	switch {
	case found == nil:
		return Caller{}, ErrUnknown
	case found.Expired(time.Now()):
		return Caller{}, ErrExpired
	}
	found.use(time.Now())
	return Caller{Name: found.Name, token: found, tokens: t}, nil
}

// Public reports whether a current token lets everybody see the counter's badge.
func (t *Tokens) Public(counter string) bool {
	now, all := time.Now(), t.set.Load().tokens
	for i := range all {
		token := &all[i]
		if token.Public && !token.Expired(now) && (Caller{token: token}).Check(counter) == nil {
			return true
		}
	}
	return false
}

// find compares with every token, and each of them completely.
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

// current reports whether the token is valid with the same rights.
func (t *Tokens) current(token *Token) bool {
	now := t.set.Load().find(token.hash)
	return now != nil && (now == token || now.Line() == token.Line()) && !now.Expired(time.Now())
}

// use notes a use of a current token. It writes once a second at most, so that requests on several
// processors do not wait for one another's writes.
func (t *Token) use(now time.Time) {
	if at := now.Unix(); t.used.Load() < at {
		t.used.Store(at)
	}
}

// keep gives each token, by its hash, its last use and, if its limits are the same, its quota of before.
func (s *tokenSet) keep(was *tokenSet, now time.Time) {
	for i := range s.tokens {
		t := &s.tokens[i]
		before := new(Token)
		if was != nil {
			before = cmp.Or(was.find(t.hash), before)
		}
		t.used = cmp.Or(before.used, new(atomic.Int64))
		if t.Limits == (Limits{}) {
			continue
		}
		if t.quota = before.quota; t.quota == nil || before.Limits != t.Limits {
			t.quota = newQuota(t.Limits, now)
		}
	}
}

// LastUsed returns when a token of each name in the file last made a call: whole seconds, and a zero
// time if none has since the process started. It has at most as many names as a file has tokens.
func (t *Tokens) LastUsed() map[string]time.Time {
	all := make(map[string]time.Time)
	for _, token := range t.set.Load().tokens {
		at, used := all[token.Name], token.used.Load()
		if used != 0 && time.Unix(used, 0).After(at) {
			at = time.Unix(used, 0)
		}
		all[token.Name] = at
	}
	return all
}
