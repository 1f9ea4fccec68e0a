package transfer

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/countmill/countmill"
)

func cut(t *testing.T, text string, began time.Time) []*Block {
	t.Helper()
	r, err := NewReader(strings.NewReader(text), Form{Format: NDJSON}, Within(began, window))
	if err != nil {
		t.Fatal(err)
	}
	var all []*Block
	for blocks := NewBlocks(r, false); ; {
		b, err := blocks.Next()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, b)
	}
}

// The blocks of a file never change. With another cut under the same numbers, a second import of the
// file would count some rows twice and lose others. If you must change these lines, change Cut.
func TestCutIsFrozen(t *testing.T) {
	t.Parallel()
	row := func(counter string, delta int64) string {
		return fmt.Sprintf("{\"counter\":%q,\"delta\":%d}\n", counter, delta)
	}
	many := strings.Repeat(row("a", 1), 25_000)
	wide := strings.Repeat(row(strings.Repeat("n", 500), 1), 3_000) // of 525 bytes
	heavy := strings.Repeat(row("h", countmill.MaxDelta), 1_000)    // 512 of them are below 2^62
	swing := strings.Repeat(row("h", countmill.MaxDelta)+row("h", -countmill.MaxDelta), 300)
	bad := strings.Repeat("nonsense\n", 9_999) + row("a", 1) + "more\n" // bad rows keep their place
	huge := row("a", 1) + strings.Repeat("x", 3<<20) + "\n" + row("a", 1)
	for name, test := range map[string]struct {
		text string
		want []string // number, lines, bytes
	}{
		"rows":       {many, []string{"0 1-10000 260000", "1 10001-20000 260000", "2 20001-25000 130000"}},
		"bytes":      {wide, []string{"0 1-1997 1048425", "1 1998-3000 526575"}},
		"deltas":     {heavy, []string{"0 1-512 20992", "1 513-1000 20008"}},
		"magnitudes": {swing, []string{"0 1-512 21248", "1 513-600 3652"}},
		"bad":        {bad, []string{"0 1-10000 90017", "1 10001-10001 5"}},
		"huge":       {huge, []string{"0 1-1 26", "1 2-2 3145729", "2 3-3 26"}},
	} {
		var got []string
		for _, b := range cut(t, test.text, began) {
			got = append(got, fmt.Sprintf("%d %d-%d %d", b.Number, b.First, b.Last, b.Size))
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s: blocks (-want +got):\n%s", name, diff)
		}
	}
}

// A row that is too old today keeps the place that it had yesterday.
func TestCutDoesNotDependOnTheClock(t *testing.T) {
	t.Parallel()
	var text strings.Builder
	for i := range 2_000 {
		fmt.Fprintf(&text, "{\"counter\":\"a\",\"delta\":%d,\"time\":%q}\n", countmill.MaxDelta-i, began.Add(-window+time.Duration(i)*time.Minute).Format(time.RFC3339))
	}
	first, later := cut(t, text.String(), began), cut(t, text.String(), began.Add(24*time.Hour))
	if len(first) != len(later) || len(first) < 3 {
		t.Fatalf("got %d blocks, later %d, want the same and at least 3", len(first), len(later))
	}
	bad := 0
	for i := range first {
		bad += len(later[i].Bad)
		if first[i].First != later[i].First || first[i].Last != later[i].Last {
			t.Errorf("block %d has lines %d to %d, later %d to %d", i, first[i].First, first[i].Last, later[i].First, later[i].Last)
		}
	}
	if bad == 0 {
		t.Error("no row is too old a day later")
	}
}

func TestAnIDWithTwoDeltas(t *testing.T) {
	t.Parallel()
	b := cut(t, `{"counter":"a","id":"i"}
{"counter":"a","id":"i"}
{"counter":"b","id":"i","delta":2}
{"counter":"a","id":"i","delta":2}`, began)[0]
	if len(b.Bad) != 1 || b.Bad[0].Line != 4 || !strings.Contains(b.Bad[0].Err.Error(), "another delta") {
		t.Errorf("got bad rows %+v, want line 4", b.Bad)
	}
}
