package journalfile

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/countmill/countmill/client"
	"github.com/countmill/countmill/internal/journal/journaltest"
)

func readNDJSON(t *testing.T, text []byte) (all []client.JournalEntry) {
	t.Helper()
	for d := json.NewDecoder(bytes.NewReader(text)); ; {
		var e client.JournalEntry
		err := d.Decode(&e)
		if err == io.EOF {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, e)
	}
}

var everyCounter = []string{"billing:a", "billing:b,\"quoted\"", "billing:ünï", "shop:a", "shop:b"}

// A file has exactly the entries of the period that the pages of its counters have, in the order of keys.
func TestEntries(t *testing.T) {
	t.Parallel()
	s := newSource(t, 6000)
	for _, tt := range []struct {
		counters string
		names    []string
	}{
		{"", everyCounter},
		{"billing:*", everyCounter[:3]},
		{"billing:a", everyCounter[:1]},
		{"billing:b,\"quoted\"", everyCounter[1:2]},
		{"nobody:*", nil},
		{"nobody", nil},
	} {
		x := s.export(t, tt.counters)
		var out bytes.Buffer
		n, err := x.Run(t.Context(), &out)
		if err != nil {
			t.Fatal(err)
		}
		want := s.want(t, x, tt.names...)
		if diff := cmp.Diff(want, readNDJSON(t, out.Bytes())); diff != "" || n != int64(len(want)) {
			t.Errorf("%q: %d entries (-pages +file):\n%s", tt.counters, n, diff)
		}
		if len(want) == len(s.all) {
			t.Errorf("%q: the period should leave out both ends", tt.counters)
		}
	}
}

// A period may begin with the first moment of all.
func TestFromTheBeginning(t *testing.T) {
	t.Parallel()
	s := newSource(t, 500)
	for _, counters := range []string{"billing:a", "billing:a*", ""} {
		x := s.export(t, counters)
		x.Period.From, x.Period.To = time.Unix(0, 0).UTC(), s.all[len(s.all)-1].Time.Add(time.Microsecond)
		want := 0
		for i := range s.all {
			if counters == "" || s.all[i].Counter == "billing:a" {
				want++
			}
		}
		var out bytes.Buffer
		if n, err := x.Run(t.Context(), &out); err != nil || n != int64(want) {
			t.Errorf("%q: got %d, %v, want %d entries", counters, n, err, want)
		}
	}
}

// An export of a counter without entries ends with its period, and not with the journal.
func TestEndOfThePeriod(t *testing.T) {
	t.Parallel()
	s := newSource(t, 90_000)
	x := s.export(t, "nobody")
	x.Period.To = x.Period.From.Add(time.Second)
	if n, err := x.Run(t.Context(), io.Discard); err != nil || n != 0 || s.requests != 1 {
		t.Errorf("got %d, %v in %d requests, want 1", n, err, s.requests)
	}
}

// A period whose end is not settled is refused.
func TestUnsettled(t *testing.T) {
	t.Parallel()
	s := newSource(t, 100)
	for _, counters := range []string{"", "billing:a"} {
		x := s.export(t, counters)
		x.Period.To = journaltest.Begin.Add(101 * 24 * time.Hour)
		_, err := x.Run(t.Context(), io.Discard)
		if err == nil || !strings.Contains(err.Error(), "--to: 2027-03-06T00:00:00.000000Z is after 2027-03-04T") {
			t.Errorf("%q: got %v", counters, err)
		}
	}
}

// Other answers than a journal are errors.
func TestForeignAnswers(t *testing.T) {
	t.Parallel()
	s := newSource(t, 1)
	for _, text := range []string{"{}", "<html>", `{"records":[{"key":"x"}],"entries":[{"key":1}]}`} {
		other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, text) }))
		defer other.Close()
		for _, counters := range []string{"", "a"} {
			x := s.export(t, counters)
			var err error
			if x.Client, err = client.New(other.URL, client.WithTries(1)); err != nil {
				t.Fatal(err)
			}
			if _, err := x.Run(t.Context(), io.Discard); err == nil {
				t.Errorf("%s: no error for %q", text, counters)
			}
		}
	}
}
