package app

import (
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/internal/auth"
	"github.com/countmill/countmill/internal/auth/authtest"
	"github.com/countmill/countmill/wire"
)

const typeBatch = "application/vnd.countmill.batch"

// aBatch has a part without an id for each counter. The ids depend on the place only.
func aBatch(counters ...string) string {
	b := wire.Batch{Time: time.Now()}
	for i, counter := range counters {
		b.Parts = append(b.Parts, wire.Part{ID: wire.PartID{0x10, byte(i)}, Entries: []wire.Entry{{Counter: counter, Delta: 1}}})
	}
	return string(wire.Append(nil, &b))
}

func (r *running) batch(t *testing.T, want, body string, header ...string) {
	t.Helper()
	status, text := r.call(t, "POST", "/v1/batches", body, append(header, "Content-Type", typeBatch)...)
	if status != http.StatusAccepted || !asOf.MatchString(text) || asOf.ReplaceAllString(strings.TrimSpace(text), "") != want {
		t.Errorf("got %d %s, want 202 %s and counted_as_of", status, text, want)
	}
}

var asOf = regexp.MustCompile(`,"counted_as_of":"[^"]+"`)

// A batch that comes again counts once, also after a restart. Other increments under its ids are named.
// Parts of this process's own have no markers.
func TestBatchesCountOnce(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	r := start(t, dir)
	r.incr(t, `{"counter":"own"}`)
	before := r.metric(t, "countmill_entities_written_total")
	r.incr(t, `{"counter":"own"}`)
	if n := r.metric(t, "countmill_entities_written_total") - before; n != 1 {
		t.Errorf("an increment of up's own took %v entities, want its shard alone", n)
	}
	body := aBatch("a", "b")
	for range 3 {
		r.batch(t, `{"parts":2}`, body)
	}
	r.batch(t, `{"parts":2,"conflicts":[{"part":1,"reason":"id-reused"}]}`, aBatch("a", "c"))
	r.stop(t)
	r = start(t, dir)
	r.batch(t, `{"parts":2}`, body)
	for counter, want := range map[string]int64{"own": 2, "a": 1, "b": 1, "c": 0} {
		r.wantTotal(t, counter, want)
	}
	if _, text := r.call(t, "GET", "/v1/dead-letters", ""); !strings.Contains(text, `"dead_letters":[]`) {
		t.Errorf("a conflict made a dead letter: %s", text)
	}
}

// No limited token can make another's part look like a repeat, nor name another's key.
func TestLimitedTokensCannotTakeIDsOfOthers(t *testing.T) {
	t.Parallel()
	scopes := []auth.Scope{auth.Publish, auth.Read}
	path, secrets := authtest.File(t, auth.Token{Name: "hostile", Scopes: scopes, Prefixes: []string{"page:"}},
		auth.Token{Name: "web", Scopes: scopes, Prefixes: []string{"page:"}}, auth.Token{Name: "all", Scopes: scopes})
	r := startWith(t, Config{Tokens: path})
	body := aBatch("page:a")
	for _, secret := range secrets {
		for range 2 {
			r.batch(t, `{"parts":1}`, body, bearer(secret)...)
		}
	}
	keyed := func(principal string) string {
		parts, err := wire.CutRequest(principal, "k", []countmill.Increment{{Counter: "page:k", Delta: 1}})
		if err != nil {
			t.Fatal(err)
		}
		return string(wire.Append(nil, &wire.Batch{Time: time.Now(), Parts: parts}))
	}
	status, text := r.call(t, "POST", "/v1/batches", keyed("web"), append(bearer(secrets[0]), "Content-Type", typeBatch)...)
	if status != http.StatusForbidden || !strings.Contains(text, `"field":"principal"`) {
		t.Errorf("another's principal: got %d %s, want 403", status, text)
	}
	// A key is the same over both routes.
	r.batch(t, `{"parts":1}`, keyed("web"), bearer(secrets[1])...)
	r.batch(t, `{"parts":1}`, keyed(""), bearer(secrets[1])...)
	r.incr(t, `{"counter":"page:k"}`, append(bearer(secrets[1]), "Idempotency-Key", "k")...)
	for counter, want := range map[string]string{"page:a": "3", "page:k": "1"} {
		if _, text := r.call(t, "GET", "/v1/counters/"+counter, "", bearer(secrets[2])...); !strings.Contains(text, `"total":`+want+",") {
			t.Errorf("%s: got %s, want %s", counter, text, want)
		}
	}
}
