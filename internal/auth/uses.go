package auth

import (
	"crypto/sha256"
	"sync/atomic"
	"time"
)

// use notes a use of a current token. It writes once a second at most, so that requests on several
// processors do not wait for one another's writes.
func (t *Token) use(now time.Time) {
	if at := now.Unix(); t.used.Load() < at {
		t.used.Store(at)
	}
}

// keepUses gives each token its last use, by the hash that it had before.
func (s *tokenSet) keepUses(was *tokenSet) {
	had := make(map[[sha256.Size]byte]*atomic.Int64)
	if was != nil {
		for _, t := range was.tokens {
			had[t.hash] = t.used
		}
	}
	for i := range s.tokens {
		t := &s.tokens[i]
		if t.used = had[t.hash]; t.used == nil {
			t.used = new(atomic.Int64)
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
