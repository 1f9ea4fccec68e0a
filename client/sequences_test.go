package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/client"
)

// A lost answer is asked for again under the same id, also if the caller gave none.
func TestSequences(t *testing.T) {
	t.Parallel()
	c, s := scripted(t, says(`{"first":7,"last":9}`), cut, says(`{"first":1,"last":1}`), says(`{"first":2,"last":2}`), says(`{"first":1,"last":2}`),
		says(`{"sequence":"a","last":4,"exists":true}`), cut, says(`{"sequence":"a","last":4,"exists":false}`))
	got, err := c.Next(t.Context(), countmill.NextRequest{Sequence: "a", ID: "x", Count: 3, Time: time.Unix(1, 0)})
	if err != nil || got != (countmill.Values{First: 7, Last: 9}) {
		t.Errorf("got %v, %v", got, err)
	}
	for n := range int64(2) {
		if got, err := c.Next(t.Context(), countmill.NextRequest{Sequence: "a"}); err != nil || got.First != n+1 {
			t.Errorf("call %d: got %v, %v", n, got, err)
		}
	}
	if got, err := c.Next(t.Context(), countmill.NextRequest{Sequence: "a"}); !errors.Is(err, countmill.ErrOutcomeUnknown) {
		t.Errorf("two values for a count of one: got %v, %v", got, err)
	}
	if _, err := c.Next(t.Context(), countmill.NextRequest{}); !errors.Is(err, countmill.ErrInvalid) {
		t.Errorf("without a name: got %v", err)
	}
	bodies := make([]map[string]any, 4)
	for i := range bodies {
		must(t, json.Unmarshal([]byte(s.bodies[i]), &bodies[i]))
	}
	if b := bodies[0]; b["sequence"] != "a" || b["id"] != "x" || b["count"] != 3.0 || b["time"] != "1970-01-01T00:00:01Z" {
		t.Errorf("the request was %v", b)
	}
	if one, again, other := bodies[1]["id"], bodies[2]["id"], bodies[3]["id"]; one == "" || one != again || again == other {
		t.Errorf("the ids were %v, %v and %v, want one for both tries of a call", one, again, other)
	}
	want := client.SequenceState{Sequence: "a", Last: 4, Exists: true}
	if got, err := c.Sequence(t.Context(), "a"); err != nil || got != want {
		t.Errorf("Sequence: got %+v, %v", got, err)
	}
	want.Exists = false
	if got, err := c.DeleteSequence(t.Context(), "a"); err != nil || got != want {
		t.Errorf("DeleteSequence after a lost answer: got %+v, %v", got, err)
	}
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "{}") }))
	defer other.Close()
	c = open(t, other.URL, client.WithTries(1))
	for _, call := range []func(context.Context, string) (client.SequenceState, error){c.Sequence, c.DeleteSequence} {
		if got, err := call(t.Context(), "a"); err == nil || !strings.Contains(err.Error(), "it has no sequence; is that a countmill?") {
			t.Errorf("an answer about no sequence: got %+v, %v", got, err)
		}
	}
	if err := c.Health(t.Context()); err == nil {
		t.Error("an answer without a status is healthy")
	}
}
