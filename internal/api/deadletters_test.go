package api_test

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/countmill/countmill/admin"
	"github.com/countmill/countmill/internal/api"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/protocol/protocoltest"
	"github.com/countmill/countmill/wire"
)

// A fakeStore has dead letters, among them large ones.
type fakeStore struct {
	*protocoltest.Store
	large []store.DeadLetter
	err   error
}

func newStore(t *testing.T, all ...store.DeadLetter) *fakeStore {
	t.Helper()
	f := &fakeStore{Store: protocoltest.New(protocoltest.Options{})}
	for _, d := range all {
		if len(d.Payload) > 1<<19 {
			f.large = append(f.large, d)
		} else if err := f.PutDeadLetters(t.Context(), []store.DeadLetter{d}); err != nil {
			t.Fatal(err)
		}
	}
	return f
}

func (f *fakeStore) GetDeadLetters(ctx context.Context, keys []string) ([]store.DeadLetter, error) {
	found, err := f.Store.GetDeadLetters(ctx, keys)
	for _, d := range f.large {
		if slices.Contains(keys, d.Key) {
			found = append(found, d)
		}
	}
	return found, errors.Join(err, f.err)
}

func entry(counter string, delta int64) wire.Entry { return wire.Entry{Counter: counter, Delta: delta} }

func anonymous(entries ...wire.Entry) wire.Part { return wire.CutAnonymous(rand.Reader, entries)[0] }

func encode(at time.Time, parts ...wire.Part) []byte {
	return wire.Append(nil, &wire.Batch{Time: asOf, Parts: parts})
}

func deadLetters(t *testing.T, f *fakeStore) surface {
	t.Helper()
	return ask(t, api.Services{DeadLetters: admin.NewDeadLetters(f)}, api.Config{})
}

func TestShow(t *testing.T) {
	t.Parallel()
	part := anonymous(entry("a", -7))
	f := newStore(t,
		store.DeadLetter{Key: "batch", Source: "s", Reason: "r", Time: asOf, At: asOf, Maybe: true, Payload: encode(asOf, part)},
		store.DeadLetter{Key: "json", At: asOf, Payload: []byte(`{"Counter": 1}`)},
		store.DeadLetter{Key: "raw", At: asOf, Time: asOf, Payload: []byte("\xffraw")},
		store.DeadLetter{Key: "newer", At: asOf, Time: asOf, Payload: []byte{8, 3}},
		store.DeadLetter{Key: "large", At: asOf, Time: asOf, Payload: []byte(`"` + strings.Repeat("x", 1<<20) + `"`)},
	)
	if err := f.PutDeadLetters(t.Context(), []store.DeadLetter{{Key: store.ReplayKey("raw")}}); err != nil {
		t.Fatal(err)
	}
	s := deadLetters(t, f)
	s.want(t, "GET", "/v1/dead-letters/batch", "", 200, `{"key":"batch","source":"s","time":"2026-11-21T04:04:03.120000Z","at":"2026-11-21T04:04:03.120000Z","reason":"r","applied":"unknown","bytes":`)
	s.want(t, "GET", "/v1/dead-letters/batch", "", 200, `"batch":{"time":"2026-11-21T04:04:03.120000Z","parts":[{"id":"`+part.ID.String()+`","kind":"anonymous","entries":[{"counter":"a","delta":-7}]}]}}`)
	s.want(t, "GET", "/v1/dead-letters/json", "", 200, `"applied":"no","bytes":14,"replay":"never","why":"Counter is not a field`)
	s.want(t, "GET", "/v1/dead-letters/json", "", 200, `"json":{"Counter":1}}`)
	s.want(t, "GET", "/v1/dead-letters/raw", "", 200, `"replay_asked":true,"replay":"never"`)
	s.want(t, "GET", "/v1/dead-letters/raw", "", 200, `"base64":"/3Jhdw=="}`)
	s.want(t, "GET", "/v1/dead-letters/newer", "", 200, "ask a server of that version")
	s.want(t, "GET", "/v1/dead-letters/large", "", 200, `"truncated":true}`)
	s.want(t, "GET", "/v1/dead-letters/nobody", "", 404, "no such dead letter")
	s.want(t, "GET", "/v1/dead-letters/a/b", "", 404, "one segment")
	s.want(t, "GET", "/v1/dead-letters/a%2Fb", "", 400, "no key of a dead letter")
}

func TestListPages(t *testing.T) {
	t.Parallel()
	f := newStore(t)
	for _, key := range []string{"a", "b", "c"} {
		if err := f.PutDeadLetters(t.Context(), []store.DeadLetter{{Key: key, At: asOf, Payload: []byte("x")}}); err != nil {
			t.Fatal(err)
		}
	}
	s := deadLetters(t, f)
	var keys, token string
	for range 2 {
		_, body, _ := s.call(t, "GET", "/v1/dead-letters?limit=2"+token, "")
		var page struct {
			DeadLetters []struct{ Key string } `json:"dead_letters"`
			Next        string                 `json:"next_page_token"`
		}
		if err := json.Unmarshal([]byte(body), &page); err != nil {
			t.Fatal(err)
		}
		for _, l := range page.DeadLetters {
			keys += l.Key
		}
		token = "&page_token=" + page.Next
	}
	if keys != "abc" || token != "&page_token=" {
		t.Errorf("got %s and then %s, want abc and the end", keys, token)
	}
	deadLetters(t, newStore(t)).want(t, "GET", "/v1/dead-letters", "", 200, `{"dead_letters":[]}`)
	s.want(t, "GET", "/v1/dead-letters?page_token=x", "", 400, "page_token")
}

func TestReplayAndDiscard(t *testing.T) {
	t.Parallel()
	payload := encode(time.Now(), anonymous(entry("a", 1)))
	f := newStore(t,
		store.DeadLetter{Key: "a", At: asOf, Time: time.Now(), Payload: payload},
		store.DeadLetter{Key: "b", At: asOf, Time: asOf.Add(-10_000 * time.Hour), Maybe: true, Payload: payload},
	)
	s := deadLetters(t, f)
	s.want(t, "POST", "/v1/dead-letters/replay", `{"keys":["a","b","c"]}`, 200,
		`{"dead_letters":[{"key":"a","result":"asked"},{"key":"b","result":"refused","why":"beyond the deduplication window of 192h0m0s: its ids are forgotten; it can only be counted as new"},{"key":"c","result":"gone"}]}`)
	s.want(t, "GET", "/v1/dead-letters", "", 200, `"replay_asked":true}`)
	s.want(t, "POST", "/v1/dead-letters/replay", `{"keys":["b"],"as_new":true}`, 200,
		`{"dead_letters":[{"key":"b","result":"asked","as_new":true,"maybe_counted_before":true}]}`)
	s.want(t, "POST", "/v1/dead-letters/discard", `{"keys":["a","c"]}`, 200, `{"dead_letters":[{"key":"a","result":"discarded"},{"key":"c","result":"gone"}]}`)
	if _, err := store.DecideDeadLetter(t.Context(), f, "b", store.DecisionCounted, time.Now(), store.NewSettings(time.Hour, time.Now())); err != nil {
		t.Fatal(err)
	}
	s.want(t, "POST", "/v1/dead-letters/discard", `{"keys":["b"]}`, 200, `{"dead_letters":[{"key":"b","result":"removed","why":"an aggregator had taken it`)
	f.err = errors.New("away")
	s.want(t, "POST", "/v1/dead-letters/discard", `{"keys":["a"]}`, 503, "unavailable")
	for _, path := range []string{"/v1/dead-letters/replay", "/v1/dead-letters/discard"} {
		for body, want := range map[string]string{
			`{"keys":[]}`: "holds 0 keys", `{"keys":["a","a/b"]}`: `"index":1`, `{"keys":[""]}`: "no key", `{"keys":["manual:é"]}`: "no key",
			`{"keys":["a"` + strings.Repeat(`,"a"`, 100) + `]}`: "holds 101 keys",
		} {
			s.want(t, "POST", path, body, 400, want)
		}
		s.want(t, "POST", path, strings.Repeat(" ", 65<<10), 413, "")
	}
}
