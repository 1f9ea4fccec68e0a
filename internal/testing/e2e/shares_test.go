package e2e

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/countmill/countmill/internal/auth"
	"github.com/countmill/countmill/internal/auth/authtest"
	"github.com/countmill/countmill/internal/testing/longtest"
)

const (
	bulkSenders     = 2
	bulkIncrements  = 10_000 // of a request
	bulkConnections = 100
	smallCallers    = 4
)

// A caller of single increments keeps its share while two bulk senders send as much as they can. None
// of its requests is refused. On an otherwise idle machine it waits for less than a second.
//
// COUNTMILL_TEST_OVERLOAD is how long it runs (3s), COUNTMILL_TEST_SHARES_P99 the limit for the 99th
// percentile of the caller's latency (8s: other tests share the machine).
func TestOverloadByBulkSenders(t *testing.T) {
	longtest.Only(t, "builds countmill and keeps the machine busy for many seconds")
	most := lengthOf(t, "COUNTMILL_TEST_SHARES_P99", 8*time.Second)
	publish := func(name string) auth.Token {
		return auth.Token{Name: name, Scopes: []auth.Scope{auth.Publish}}
	}
	file, secrets := authtest.File(t, publish("bulk-0"), publish("bulk-1"), publish("small"))
	for name, tc := range map[string]struct {
		flags  []string
		tokens []string
	}{
		"by token":      {[]string{"--tokens", file}, secrets},
		"by connection": {nil, []string{"", "", ""}},
	} {
		t.Run(name, func(t *testing.T) {
			up := start(t, []string{"GOMEMLIMIT=", "GOGC="}, "up", append(tc.flags, "--data", t.TempDir())...)
			alone := newSender(up.url, tc.tokens[bulkSenders], 1)
			alone.run(1, time.Second)
			stop := make(chan struct{})
			var all sync.WaitGroup
			bulk := make([]*sender, bulkSenders)
			for i := range bulk {
				bulk[i] = newSender(up.url, tc.tokens[i], bulkIncrements)
				for range bulkConnections {
					all.Go(func() { bulk[i].sendUntil(stop) })
				}
			}
			<-time.After(5 * time.Second) // by then up has measured its speed
			small := newSender(up.url, tc.tokens[bulkSenders], 1)
			small.run(smallCallers, overloadLength(t))
			close(stop)
			all.Wait()
			t.Logf("small callers alone: %s; beside bulk senders: %s", alone, small)
			for _, b := range bulk {
				t.Logf("a bulk sender: %s", b)
				if b.statuses[http.StatusAccepted] == 0 {
					t.Error("a bulk sender has no share")
				}
			}
			if len(small.statuses) != 1 || small.statuses[http.StatusAccepted] == 0 {
				t.Errorf("single increments were answered with %v, want 202 only", small.statuses)
			}
			if p99 := quantile(small.took, 0.99); p99 > most {
				t.Errorf("99 of 100 single increments took up to %s, want at most %s", p99, most)
			}
		})
	}
}

// A sender has connections that send one request after the other. All increments are for new counters,
// which are the most expensive ones.
type sender struct {
	url, token string
	increments int // of a request

	mu       sync.Mutex
	statuses map[int]int
	took     []time.Duration
}

func newSender(url, token string, increments int) *sender {
	return &sender{url: url, token: token, increments: increments, statuses: make(map[int]int)}
}

// newName is where the digits of a name are. Each request has other digits.
const newName = "bulk:a-name-of-the-length-that-names-have:"

// request returns a request with room for the names.
func (s *sender) request() (request []byte, names []int) {
	line := `{"counter":"` + newName + "0000000000000000\"}\n"
	request = postingAs(s.url, s.token, strings.Repeat(line, s.increments))
	for at := 0; ; {
		next := bytes.Index(request[at:], []byte(newName))
		if next < 0 {
			return request, names
		}
		at += next + len(newName)
		names = append(names, at)
	}
}

// run sends on a number of connections for a time.
func (s *sender) run(connections int, length time.Duration) {
	stop := make(chan struct{})
	time.AfterFunc(length, func() { close(stop) })
	var all sync.WaitGroup
	for range connections {
		all.Go(func() { s.sendUntil(stop) })
	}
	all.Wait()
}

func (s *sender) sendUntil(stop chan struct{}) {
	request, names := s.request()
	var c *caller
	defer func() {
		if c != nil {
			_ = c.conn.Close()
		}
	}()
	for {
		select {
		case <-stop:
			return
		default:
		}
		if c == nil {
			var err error
			if c, err = call(s.url); err != nil {
				s.note(0, 0)
				return
			}
		}
		for _, at := range names {
			digits := rand.Uint64()
			for i := range 16 {
				request[at+i] = 'a' + byte(digits>>(4*i)&15)
			}
		}
		began := time.Now()
		a, err := c.post(request)
		s.note(a.status, time.Since(began))
		if err != nil || a.last {
			_ = c.conn.Close()
			c = nil
		}
		if a.status == http.StatusTooManyRequests {
			<-time.After(time.Second)
		}
	}
}

func (s *sender) note(status int, took time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.statuses[status]++
	s.took = append(s.took, took)
}

func (s *sender) String() string {
	return fmt.Sprintf("answers %v, median %.0f ms, 99 %% %.0f ms", s.statuses, ms(quantile(s.took, 0.5)), ms(quantile(s.took, 0.99)))
}
