package app

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/countmill/countmill"
)

const reusedEach = 8_000

// reusing is a request of 8,000 ids, with one delta for all.
func reusing(request, delta int) string {
	var b strings.Builder
	b.WriteByte('[')
	for i := range reusedEach {
		fmt.Fprintf(&b, `{"counter":"r%d","id":"e%d","delta":%d},`, request, i, delta)
	}
	return strings.TrimSuffix(b.String(), ",") + "]"
}

// Ids that come again with another delta stop nobody: all other requests are counted meanwhile.
func TestReusedIDsStopNobody(t *testing.T) {
	t.Parallel()
	const requests, others = 10, 40
	r := startWith(t, Config{})
	for n := range requests {
		r.incr(t, reusing(n, 1))
	}
	var all sync.WaitGroup
	for n := range requests {
		all.Go(func() {
			for range 2 { // a repeat gets the same answer
				r.wantConflicts(t, reusing(n, 2))
			}
		})
	}
	<-time.After(500 * time.Millisecond)
	for i := range others {
		all.Go(func() {
			if status, text, err := r.unhurried("POST", "/v1/increments", fmt.Sprintf(`{"counter":"other%d"}`, i)); err != nil || status != http.StatusAccepted {
				t.Errorf("another request: got %d %s (%v), want 202", status, text, err)
			}
		})
	}
	all.Wait()
	if got := r.metric(t, "countmill_dead_letters_total"); got != 0 {
		t.Errorf("%v dead letters of increments whose senders were told, want none", got)
	}
	for n := range requests {
		r.wantTotal(t, fmt.Sprint("r", n), reusedEach)
	}
}

// unhurried repeats a request after a 429, or after a 504 for its time-out: the machine may be slow.
func (r *running) unhurried(method, path, body string) (status int, text string, err error) {
	for deadline := time.Now().Add(patience); ; <-time.After(100 * time.Millisecond) {
		status, text, err = r.try(method, path, body)
		slow := status == http.StatusTooManyRequests || status == http.StatusGatewayTimeout
		if !slow || time.Now().After(deadline) {
			return status, text, err
		}
	}
}

// wantConflicts sends a request of which nothing is counted.
func (r *running) wantConflicts(t *testing.T, body string) {
	status, text, err := r.unhurried("POST", "/v1/increments", body)
	var got struct {
		Type      string
		Conflicts []countmill.Conflict
	}
	if err == nil {
		err = json.Unmarshal([]byte(text), &got)
	}
	if err != nil || status != http.StatusUnprocessableEntity || got.Type != "urn:countmill:problem:ids-reused" || len(got.Conflicts) != reusedEach {
		t.Errorf("got %d %.300s (%v), want 422 ids-reused with %d conflicts", status, text, err, reusedEach)
		return
	}
	for i, c := range got.Conflicts {
		if c.Position != i || c.ID != fmt.Sprint("e", i) {
			t.Errorf("conflict %d is %+v, want position %d, id e%d", i, c, i, i)
			return
		}
	}
}
