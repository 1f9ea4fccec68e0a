package api

import (
	"bytes"
	"encoding/json"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/countmill/countmill/reader"
)

// The answers as encoding/json writes them.
type (
	totalObject struct {
		Counter string `json:"counter"`
		Total   any    `json:"total"`
		AsOf    string `json:"as_of"`
		Source  string `json:"source"`
		Shards  int    `json:"shards"`
		Exists  bool   `json:"exists"`
		Checked string `json:"checked_at,omitempty"`
		Hint    string `json:"hint,omitempty"`
	}
	totalsObject struct {
		Totals []totalObject `json:"totals"`
		Lag    *float64      `json:"lag"`
	}
	counterObject struct {
		totalObject
		Lag *float64 `json:"lag"`
	}
)

func objectOf(t reader.Total, quoted bool) totalObject {
	const form = "2006-01-02T15:04:05.000000Z"
	o := totalObject{Counter: t.Counter, Total: t.Total, AsOf: t.AsOf.UTC().Format(form), Source: t.Source, Shards: t.Shards, Exists: t.Exists}
	if !t.Checked.IsZero() {
		o.Checked = t.Checked.UTC().Format(form)
	}
	if !t.Exists && strings.Contains(t.Counter, ",") {
		o.Hint = listHint
	}
	if quoted {
		o.Total = strconv.FormatInt(t.Total, 10)
	}
	return o
}

// sameJSON compares after both were parsed, with every digit of numbers: escapes may differ.
func sameJSON(t *testing.T, got []byte, v any) {
	t.Helper()
	want, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	if !json.Valid(got) || bytes.ContainsAny(got, "\n\r") {
		t.Fatalf("%q is not JSON on one line", got)
	}
	parse := func(text []byte) (v any) {
		dec := json.NewDecoder(bytes.NewReader(text))
		dec.UseNumber()
		if err := dec.Decode(&v); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		return v
	}
	if diff := cmp.Diff(parse(want), parse(got)); diff != "" {
		t.Fatalf("differs from encoding/json (-want +got):\n%s", diff)
	}
}

// Answers are what encoding/json would make of them.
func FuzzAnswersAreJSON(f *testing.F) {
	f.Add("page:/home", int64(5), int64(1e15), "cache", 1, true, false, int64(1500))
	f.Add("a\"b\\c\u2028\u00e9\x7f<&>", int64(math.MinInt64), int64(-1), "store", 999, false, true, int64(math.MaxInt64))
	f.Add("\xff\x00\n", int64(math.MaxInt64), int64(0), "", -1, true, true, int64(-1))
	f.Add("a,b", int64(0), int64(0), "store", 0, false, false, int64(0))
	f.Add("", int64(0), int64(253402300800e6), "x", 0, true, false, int64(999)) // the year 10000
	f.Fuzz(func(t *testing.T, name string, total, asOf int64, source string, shards int, exists, quoted bool, lag int64) {
		at := time.UnixMicro(asOf).In(time.FixedZone("", 3600))
		one := reader.Total{Counter: name, Total: total, AsOf: at, Source: source, Shards: shards, Exists: exists}
		two := reader.Total{Counter: source, Total: -total, AsOf: at, Source: name, Exists: !exists, Checked: at.Add(-time.Second)}
		pipeline := reader.Pipeline{Workers: shards & 1, Lag: time.Duration(lag)}
		seconds := lagOf(pipeline)
		if (seconds == nil) == (pipeline.Workers > 0 || lag > 0) {
			t.Fatalf("lag is %v of %d with %d workers", seconds, lag, pipeline.Workers)
		}
		for _, ts := range [][]reader.Total{{}, {one}, {one, two}} {
			want := totalsObject{[]totalObject{}, seconds}
			for _, t := range ts {
				want.Totals = append(want.Totals, objectOf(t, quoted))
			}
			answer := &totals{totals: ts, quoted: quoted, lag: seconds}
			sameJSON(t, answer.AppendJSON(nil), want)
			if len(ts) > 0 {
				sameJSON(t, (*counter)(answer).AppendJSON(nil), counterObject{want.Totals[0], seconds})
			}
			if got := answer.AppendJSON([]byte("before")); !bytes.HasPrefix(got, []byte("before{")) {
				t.Fatalf("it does not append: %s", got)
			}
		}
	})
}
