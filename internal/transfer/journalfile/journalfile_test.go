package journalfile

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/countmill/countmill/client"
	"github.com/countmill/countmill/internal/journal/journaltest"
	"github.com/countmill/countmill/internal/transfer"
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

func readCSV(t *testing.T, text []byte) (all []client.JournalEntry) {
	t.Helper()
	rows, err := csv.NewReader(bytes.NewReader(text)).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	if head := strings.Join(rows[0], " "); head != "key time counter delta part sender" {
		t.Errorf("columns %q", head)
	}
	for _, r := range rows[1:] {
		at, err := time.Parse(time.RFC3339, r[1])
		delta, err2 := strconv.ParseInt(r[3], 10, 64)
		if err != nil || err2 != nil {
			t.Fatal(err, err2)
		}
		all = append(all, client.JournalEntry{Key: r[0], Time: at, Counter: r[2], Delta: delta, Part: r[4], Sender: r[5]})
	}
	return all
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
		for format, read := range map[string]func(*testing.T, []byte) []client.JournalEntry{"ndjson": readNDJSON, "csv": readCSV} {
			x := s.export(t, tt.counters, format)
			var out bytes.Buffer
			done, err := x.Stream(t.Context(), &out)
			if err != nil {
				t.Fatal(err)
			}
			want := s.want(t, x, tt.names...)
			if diff := cmp.Diff(want, read(t, out.Bytes())); diff != "" {
				t.Errorf("%s of %q (-pages +file):\n%s", format, tt.counters, diff)
			}
			if wantDone := (Exported{int64(len(want)), int64(out.Len()), 0}); done != wantDone {
				t.Errorf("%s of %q: got %+v, want %+v", format, tt.counters, done, wantDone)
			}
			if len(want) == len(s.all) {
				t.Errorf("%q: the period should leave out both ends", tt.counters)
			}
		}
	}
}

// A spreadsheet runs nothing of what clients chose.
func TestSpreadsheet(t *testing.T) {
	t.Parallel()
	x := Spreadsheet()
	entries := []client.JournalEntry{{Key: "00ff", Counter: "@SUM(A1)", Delta: -7, Part: "+1", Sender: "=a"}, {Key: "01", Counter: "a;=\"b\"", Delta: 1}}
	text, err := x.Append(x.Head, entries)
	const want = "key,time,'counter,delta,'part,'sender\n00ff,0001-01-01T00:00:00.000000Z,\"'@SUM(A1)\",-7,\"'+1\",\"'=a\"\n01,0001-01-01T00:00:00.000000Z,\"a;=\"\"b\"\"\",1,\"\",\"\"\n"
	if err != nil || string(text) != want {
		t.Errorf("got %s, %v, want %s", text, err, want)
	}
}

// A period may begin with the first moment of all.
func TestFromTheBeginning(t *testing.T) {
	t.Parallel()
	s := newSource(t, 500)
	for _, counters := range []string{"billing:a", "billing:a*", ""} {
		x := s.export(t, counters, "ndjson")
		x.Period.From, x.Period.To = time.Unix(0, 0).UTC(), s.all[len(s.all)-1].Time.Add(time.Microsecond)
		want := 0
		for i := range s.all {
			if counters == "" || s.all[i].Counter == "billing:a" {
				want++
			}
		}
		var out bytes.Buffer
		if done, err := x.Stream(t.Context(), &out); err != nil || done.Entries != int64(want) {
			t.Errorf("%q: got %+v, %v, want %d entries", counters, done, err, want)
		}
	}
}

// An export of a counter without entries ends with its period, and not with the journal.
func TestEndOfThePeriod(t *testing.T) {
	t.Parallel()
	s := newSource(t, 90_000)
	x := s.export(t, "nobody", "csv")
	x.Period.To = x.Period.From.Add(time.Second)
	if done, err := x.Stream(t.Context(), io.Discard); err != nil || done.Entries != 0 || s.requests != 1 {
		t.Errorf("got %+v, %v in %d requests, want 1", done, err, s.requests)
	}
}

// An export that is stopped after any request goes on, and its file has the same bytes as without the stop. A
// kill can leave more bytes than the state knows, and half a line in the state.
func TestResume(t *testing.T) {
	t.Parallel()
	s := newSource(t, 40_000)
	for _, counters := range []string{"", "billing:*", "billing:a"} {
		for _, format := range []string{"ndjson", "csv"} {
			s.requests, s.allowed = 0, 1<<30
			var want bytes.Buffer
			if _, err := s.export(t, counters, format).Stream(t.Context(), &want); err != nil {
				t.Fatal(err)
			}
			needed, seed := s.requests, rand.Uint64()
			random := rand.New(rand.NewPCG(seed, 0))
			path := filepath.Join(t.TempDir(), "file."+format)
			resumed, stops := int64(0), 0
			for {
				s.requests, s.allowed = 0, 1+random.IntN(needed+stops)
				done, err := s.export(t, counters, format).File(t.Context(), path)
				resumed = max(resumed, done.Resumed)
				if err == nil {
					break
				}
				if stops++; stops == 20 {
					t.Fatalf("%s of %q (seed %d): %v", format, counters, seed, err)
				}
				tear(t, path, random)
			}
			got, err := os.ReadFile(path)
			if err != nil || !bytes.Equal(got, want.Bytes()) {
				t.Errorf("%s of %q after %d stops (seed %d): %d bytes differ from the %d of an export without stops, %v",
					format, counters, stops, seed, len(got), want.Len(), err)
			}
			if stops > 3 && resumed == 0 {
				t.Errorf("%s of %q: %d exports were stopped, and none went on", format, counters, stops)
			}
			for _, suffix := range []string{partSuffix, stateSuffix} {
				if _, err := os.Stat(path + suffix); !os.IsNotExist(err) {
					t.Errorf("%s is left: %v", suffix, err)
				}
			}
		}
	}
}

// tear adds the bytes that a kill can leave behind.
func tear(t *testing.T, path string, random *rand.Rand) {
	t.Helper()
	for suffix, text := range map[string]string{partSuffix: "half an ent", stateSuffix: `{"bytes":12`} {
		if random.IntN(2) == 0 {
			continue
		}
		f, err := os.OpenFile(path+suffix, os.O_APPEND|os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteString(text); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// The whole file has the same bytes each time, also over an older one, and over a state that a kill left beside it.
func TestRepeat(t *testing.T) {
	t.Parallel()
	s := newSource(t, 5000)
	path := filepath.Join(t.TempDir(), "file")
	var first []byte
	for i := range 3 {
		if _, err := s.export(t, "", "csv").File(t.Context(), path); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			first = got
		} else if !bytes.Equal(got, first) {
			t.Errorf("time %d: %d bytes differ from the first %d", i+1, len(got), len(first))
		}
		// As after a kill between the rename and the removal of the state.
		if err := os.WriteFile(path+stateSuffix, []byte("{}\n{\"bytes\":1000000,\"after\":\"x\"}\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// Two exports do not write one file at the same time.
func TestTwoExportsOfAFile(t *testing.T) {
	t.Parallel()
	x, path := newSource(t, 1000).export(t, "", "csv"), filepath.Join(t.TempDir(), "file")
	release, err := transfer.Hold(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := x.File(t.Context(), path); !errors.Is(err, transfer.ErrHeld) {
		t.Errorf("beside another export: %v, want ErrHeld", err)
	}
	release()
	if _, err := x.File(t.Context(), path); err != nil {
		t.Errorf("after it: %v", err)
	}
}

// An export refuses the files of another one.
func TestFilesOfAnotherExport(t *testing.T) {
	t.Parallel()
	s := newSource(t, 20_000)
	path := filepath.Join(t.TempDir(), "file")
	stop := func() {
		t.Helper()
		s.requests, s.allowed = 0, 1
		if _, err := s.export(t, "", "csv").File(t.Context(), path); err == nil {
			t.Fatal("an export without answers ended")
		}
		s.allowed = 1 << 30
	}
	stop()
	for name, change := range map[string]func(*Export){
		"server":   func(x *Export) { x.Server = "http://127.0.0.1:9" },
		"format":   func(x *Export) { x.Format = NDJSON() },
		"counters": func(x *Export) { x.Period.Counters = "billing:*" },
		"from":     func(x *Export) { x.Period.From = x.Period.From.Add(time.Microsecond) },
		"to":       func(x *Export) { x.Period.To = x.Period.To.Add(time.Microsecond) },
		"version":  func(x *Export) { x.Version = "v2" },
	} {
		x := s.export(t, "", "csv")
		change(x)
		if _, err := x.File(t.Context(), path); err == nil || !strings.Contains(err.Error(), "is of another export") {
			t.Errorf("another %s: got %v", name, err)
		}
	}
	wrong := func(want string) {
		t.Helper()
		if _, err := s.export(t, "", "csv").File(t.Context(), path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	if err := os.Truncate(path+partSuffix, 3); err != nil {
		t.Fatal(err)
	}
	wrong("remove both, and begin anew")
	if err := os.WriteFile(path+stateSuffix, []byte("no state\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	wrong("is not the state of an export")
	if err := os.Remove(path + stateSuffix); err != nil {
		t.Fatal(err)
	}
	wrong("is in the way")
}

// A period whose end is not settled is refused, and nothing is renamed.
func TestUnsettled(t *testing.T) {
	t.Parallel()
	s := newSource(t, 100)
	for _, counters := range []string{"", "billing:a"} {
		x := s.export(t, counters, "csv")
		x.Period.To = journaltest.Begin.Add(101 * 24 * time.Hour)
		path := filepath.Join(t.TempDir(), "file")
		_, err := x.File(t.Context(), path)
		if err == nil || !strings.Contains(err.Error(), "--to: 2027-03-06T00:00:00.000000Z is after 2027-03-04T") {
			t.Errorf("%q: got %v", counters, err)
		}
		if _, err := os.Stat(path); !os.IsNotExist(err) {
			t.Errorf("%q: a file of a period that is not over: %v", counters, err)
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
			x := s.export(t, counters, "csv")
			var err error
			if x.Client, err = client.New(other.URL, client.WithTries(1)); err != nil {
				t.Fatal(err)
			}
			if _, err := x.Stream(t.Context(), io.Discard); err == nil {
				t.Errorf("%s: no error for %q", text, counters)
			}
		}
	}
}
