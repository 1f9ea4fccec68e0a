package app

import (
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/wire"
)

// deadKeys is the keys of all letters.
func (r *running) deadKeys(t *testing.T) (keys []string) {
	t.Helper()
	status, text := r.call(t, "GET", "/v1/dead-letters", "")
	var got struct {
		DeadLetters []struct{ Key string } `json:"dead_letters"`
	}
	if err := json.Unmarshal([]byte(text), &got); err != nil || status != http.StatusOK {
		t.Fatalf("dead letters: %d %s (%v)", status, text, err)
	}
	for _, l := range got.DeadLetters {
		keys = append(keys, l.Key)
	}
	return keys
}

func (r *running) replay(t *testing.T, body, want string) {
	t.Helper()
	if status, text := r.call(t, "POST", "/v1/dead-letters/replay", body); status != http.StatusOK || text != want+"\n" {
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

// A reader has no bus and folds nothing: an aggregator does the replay that a reader is asked for.
func TestAReaderIsAskedForAReplay(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("waits until an aggregator looks for letters")
	}
	b := openApart(t)
	reader, agg := b.run(t, Config{Roles: Reader}), b.run(t, Config{Roles: Aggregator})
	defer reader.stop(t)
	defer agg.stop(t)
	part := wire.CutIdentified(countmill.Increment{Counter: "a", Delta: 3, ID: "x"})
	err := b.store.PutDeadLetters(t.Context(), []store.DeadLetter{{
		Key: "0a", Source: "m", Time: time.Now(), At: time.Now(), Maybe: true,
		Payload: wire.Append(nil, &wire.Batch{Time: time.Now(), Parts: []wire.Part{part}}),
	}})
	if err != nil {
		t.Fatal(err)
	}
	reader.replay(t, `{"keys":["0a"]}`, `{"dead_letters":[{"key":"0a","result":"asked"}]}`)
	await(t, "the letter goes", func() bool { return len(reader.deadKeys(t)) == 0 })
	reader.wantTotal(t, "a", 3)
}
