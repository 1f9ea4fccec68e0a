package client_test

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/client"
)

// sequences answers each request with the next of the answers; an empty one is a lost answer.
func sequences(t *testing.T, answers ...string) (c *client.Client, bodies *[]map[string]any) {
	t.Helper()
	bodies = new([]map[string]any)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, err := io.ReadAll(r.Body)
		var body map[string]any
		if len(text) > 0 {
			err = errors.Join(err, json.Unmarshal(text, &body))
		}
		if err != nil || len(*bodies) >= len(answers) {
			t.Errorf("request %d: %s, %v", len(*bodies), text, err)
			return
		}
		*bodies = append(*bodies, body)
		if answers[len(*bodies)-1] == "" {
			panic(http.ErrAbortHandler)
		}
		_, _ = io.WriteString(w, answers[len(*bodies)-1])
	}))
	t.Cleanup(srv.Close)
	c, err := client.New(srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.CloseIdleConnections)
	return c, bodies
}

func TestNext(t *testing.T) {
	t.Parallel()
	c, bodies := sequences(t, `{"first":7,"last":9}`)
	got, err := c.Next(t.Context(), countmill.NextRequest{Sequence: "a", ID: "x", Count: 3, Time: time.Unix(1, 0)})
	if err != nil || got != (countmill.Values{First: 7, Last: 9}) {
		t.Errorf("got %v, %v", got, err)
	}
	if b := (*bodies)[0]; b["sequence"] != "a" || b["id"] != "x" || b["count"] != 3.0 || b["time"] != "1970-01-01T00:00:01Z" {
		t.Errorf("the request was %v", b)
	}
	if _, err := c.Next(t.Context(), countmill.NextRequest{}); !errors.Is(err, countmill.ErrInvalid) {
		t.Errorf("without a name: got %v", err)
	}
}

// A lost answer is asked for again under the same id, also if the caller gave none.
func TestNextRepeatsWithOneID(t *testing.T) {
	t.Parallel()
	c, bodies := sequences(t, "", `{"first":1,"last":1}`, `{"first":2,"last":2}`, `{"first":1,"last":2}`)
	for n := range int64(2) {
		if got, err := c.Next(t.Context(), countmill.NextRequest{Sequence: "a"}); err != nil || got.First != n+1 {
			t.Errorf("call %d: got %v, %v", n, got, err)
		}
	}
	b := *bodies
	if b[0]["id"] == "" || b[0]["id"] != b[1]["id"] || b[1]["id"] == b[2]["id"] {
		t.Errorf("the ids were %v, %v and %v, want one for both tries of a call", b[0]["id"], b[1]["id"], b[2]["id"])
	}
	if got, err := c.Next(t.Context(), countmill.NextRequest{Sequence: "a"}); !errors.Is(err, countmill.ErrOutcomeUnknown) {
		t.Errorf("two values for a count of one: got %v, %v", got, err)
	}
}

func TestSequenceStates(t *testing.T) {
	t.Parallel()
	c, _ := sequences(t, `{"sequence":"a","last":4,"exists":true}`, "", `{"sequence":"a","last":4,"exists":false}`)
	want := client.SequenceState{Sequence: "a", Last: 4, Exists: true}
	if got, err := c.Sequence(t.Context(), "a"); err != nil || got != want {
		t.Errorf("Sequence: got %+v, %v", got, err)
	}
	want.Exists = false
	if got, err := c.DeleteSequence(t.Context(), "a"); err != nil || got != want {
		t.Errorf("DeleteSequence after a lost answer: got %+v, %v", got, err)
	}
}
