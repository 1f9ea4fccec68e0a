package billion

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/countmill/countmill/bench/internal/load"
)

// crashing counts each key once. It answers half of its requests with a broken connection, before or
// after it has counted.
type crashing struct {
	mu     sync.Mutex
	calls  int
	bodies map[string]string
	totals map[string]int64
}

func (c *crashing) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls++
	if c.calls%4 == 1 {
		panic(http.ErrAbortHandler)
	}
	key := r.Header.Get("Idempotency-Key")
	if first, ok := c.bodies[key]; !ok {
		c.bodies[key] = string(body)
		for line := range strings.Lines(string(body)) {
			var inc struct{ Counter string }
			if json.Unmarshal([]byte(line), &inc) == nil {
				c.totals[inc.Counter]++
			}
		}
	} else if first != string(body) {
		c.totals["another body under the same key"]++
	}
	if c.calls%4 == 2 {
		panic(http.ErrAbortHandler)
	}
}

// A server that recognises keys counts exactly the increments that the generator recorded, however
// often connections break.
func TestSendsEverythingOnce(t *testing.T) {
	t.Parallel()
	c := &crashing{bodies: make(map[string]string), totals: make(map[string]int64)}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c.ServeHTTP(w, r)
		w.WriteHeader(http.StatusAccepted)
	}))
	server.Start()
	defer server.Close()
	cfg, err := parse([]string{"-increments", "10050", "-names", "50", "-body", "100", "-conns", "3"}, t.Output())
	if err != nil {
		t.Fatal(err)
	}
	s, err := newSender(cfg, server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if err := s.send(t.Context()); err != nil {
		t.Fatal(err)
	}
	sum := int64(0)
	for i, want := range s.want() {
		name := load.Names(50)[i]
		if got := c.totals[name]; got != want {
			t.Errorf("%s: got %d, want %d", name, got, want)
		}
		sum += want
	}
	if sum != 10_050 || s.done.Load() != sum || len(c.bodies) != 101 || s.resends.Load() == 0 {
		t.Errorf("got %d increments, %d acknowledged, in %d bodies, %d sent again; want 10050 in 101, some sent again", sum, s.done.Load(), len(c.bodies), s.resends.Load())
	}
}

func TestQuick(t *testing.T) {
	if testing.Short() {
		t.Skip("builds countmill and kills it")
	}
	var out strings.Builder
	if err := Run(context.Background(), []string{"-quick"}, &out, io.Discard); err != nil {
		t.Fatal(err)
	}
	if !regexp.MustCompile(`(?s)exact: 5000000 increments.*killed [1-9]\d* times.*up took [1-9]\d* MiB.* has [1-9]\d* MiB on disk`).MatchString(out.String()) {
		t.Errorf("no kills, memory or disk in %s", out.String())
	}
}
