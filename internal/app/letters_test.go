package app

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/admin/letters"
	"github.com/countmill/countmill/aggregator"
	"github.com/countmill/countmill/backend/backendtest/fakestore"
	"github.com/countmill/countmill/backend/loopback"
	"github.com/countmill/countmill/backend/pebble"
	"github.com/countmill/countmill/wire"
)

// deadKeys is the keys of all letters.
func (r *running) deadKeys(t *testing.T) (keys []string) {
	t.Helper()
	status, text := r.call(t, "GET", "/v1/dead", "")
	var got struct{ Letters []struct{ Key string } }
	if err := json.Unmarshal([]byte(text), &got); err != nil || status != http.StatusOK {
		t.Fatalf("dead letters: %d %s (%v)", status, text, err)
	}
	for _, l := range got.Letters {
		keys = append(keys, l.Key)
	}
	return keys
}

func (r *running) replay(t *testing.T, body, want string) {
	t.Helper()
	if status, text := r.call(t, "POST", "/v1/dead/replay", body); status != http.StatusOK || text != want+"\n" {
		t.Errorf("replay %s: got %d %s, want %s", body, status, text, want)
	}
}

func await(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !done(); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %s", what, patience)
		}
	}
}

// An id that is used again with another delta: the second stands aside until a person
// has it counted under a new one.
func TestADeadLetterIsCountedAsNew(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("waits until an aggregator looks for letters")
	}
	r := start(t, t.TempDir())
	r.incr(t, `{"counter":"a","id":"x"}`)
	r.incr(t, `{"counter":"a","id":"x","delta":10}`)
	await(t, "a dead letter", func() bool { return len(r.deadKeys(t)) == 1 })
	key := r.deadKeys(t)[0]
	r.replay(t, fmt.Sprintf(`{"keys":[%q]}`, key),
		fmt.Sprintf(`{"letters":[{"key":%q,"result":"refused","why":"its id was counted with other increments; it can only be counted as new"}]}`, key))
	r.replay(t, fmt.Sprintf(`{"keys":[%q],"as_new":true}`, key), fmt.Sprintf(`{"letters":[{"key":%q,"result":"asked","as_new":true}]}`, key))
	await(t, "the letter goes", func() bool { return len(r.deadKeys(t)) == 0 })
	r.wantTotal(t, "a", 11)
}

// A reader has no bus and folds nothing: whoever asks it is answered by an aggregator.
func TestAReaderIsAskedForAReplay(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("waits until an aggregator looks for letters")
	}
	s, err := pebble.Open(pebble.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	b, err := loopback.New(loopback.Config{WaitForAck: true})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	roles := make(map[Roles]*running)
	for _, role := range []Roles{Reader, Aggregator} {
		a, err := newApp(Config{Roles: role, Listen: "127.0.0.1:0"}, func(Config) (*backends, error) {
			return &backends{bus: sharedBus{b}, store: sharedStore{s}}, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		roles[role] = run(t, a)
		defer roles[role].stop(t)
	}
	part := wire.CutIdentified(countmill.Increment{Counter: "a", Delta: 3, ID: "x"})
	err = s.Bury(t.Context(), []aggregator.Dead{{
		Key: "0a", Source: "m", Time: time.Now(), At: time.Now(), Maybe: true,
		Payload: wire.Append(nil, &wire.Batch{Time: time.Now(), Parts: []wire.Part{part}}),
	}})
	if err != nil {
		t.Fatal(err)
	}
	reader := roles[Reader]
	reader.replay(t, `{"keys":["0a"]}`, `{"letters":[{"key":"0a","result":"asked"}]}`)
	await(t, "the letter goes", func() bool { return len(reader.deadKeys(t)) == 0 })
	reader.wantTotal(t, "a", 3)
}

// What asks for a replay is no letter, wherever a page begins or ends.
func TestWishesAreNoLetters(t *testing.T) {
	t.Parallel()
	m := morgue{fakestore.New(fakestore.Options{})}
	var all []string
	for _, key := range []string{"0a", "0b", "fe", "ff", "newer:01:a", "newer:01:b"} {
		all = append(all, key)
		if err := m.store.Bury(t.Context(), []aggregator.Dead{{Key: key, Payload: []byte(key)}}); err != nil {
			t.Fatal(err)
		}
		if key == "0b" || key == "newer:01:a" {
			continue
		}
		if err := m.Ask(t.Context(), letters.Letter{Key: key}); err != nil {
			t.Fatal(err)
		}
	}
	for limit := 1; limit < 10; limit++ {
		var keys []string
		after := ""
		for {
			page, err := m.Page(t.Context(), after, limit)
			if err != nil {
				t.Fatal(err)
			}
			for _, l := range page {
				keys = append(keys, l.Key)
				if want := l.Key != "0b" && l.Key != "newer:01:a"; l.Asked != want || string(l.Payload) != l.Key {
					t.Errorf("letter %+v, want it asked for: %t", l, want)
				}
				after = l.Key
			}
			if len(page) < limit {
				break
			}
		}
		if fmt.Sprint(keys) != fmt.Sprint(all) {
			t.Errorf("limit %d: %q, want %q", limit, keys, all)
		}
	}
	found, err := m.Find(t.Context(), []string{"ff", "manual:ff", "0b"})
	if err != nil || len(found) != 2 || found[0].Key != "ff" || !found[0].Asked || found[1].Asked {
		t.Errorf("Find: %+v, %v; want ff, asked for, and 0b", found, err)
	}
	if uncounted, err := m.Discard(t.Context(), letters.Letter{Key: "ff"}, time.Hour); !uncounted || err != nil {
		t.Fatal(uncounted, err)
	}
	if left, err := m.store.DeadByKey(t.Context(), []string{"ff", "manual:ff", "manual:fe"}); err != nil || len(left) != 1 {
		t.Errorf("after a discard: %v, %v; want only the wish for another", left, err)
	}
}
