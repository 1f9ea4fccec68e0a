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
	"github.com/countmill/countmill/wire"
)

var (
	began  = time.Date(2026, 1, 10, 12, 0, 0, 0, time.UTC)
	window = countmill.DefaultDedupWindow
)

func newReader(t *testing.T, text string, format Format) *Reader {
	t.Helper()
	r, err := NewReader(strings.NewReader(text), Form{Format: format}, Within(began, window))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func readAll(t *testing.T, r *Reader) []Row {
	t.Helper()
	var all []Row
	for {
		row, err := r.Next()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, row)
	}
}

func TestGoodRows(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 9, 0, 0, 0, 0, time.UTC)
	inc := func(counter string, delta int64, id string, at time.Time) countmill.Increment {
		return countmill.Increment{Counter: counter, Delta: delta, ID: id, Time: at}
	}
	for name, test := range map[string]struct {
		format Format
		text   string
		want   []countmill.Increment
	}{
		"csv":             {CSV, "counter,delta\na,1\nb,-2", []countmill.Increment{inc("a", 1, "", time.Time{}), inc("b", -2, "", time.Time{})}},
		"csv order":       {CSV, "time,delta,id,counter\n2026-01-09T00:00:00Z,3,i,a\n,4,,b\n", []countmill.Increment{inc("a", 3, "i", at), inc("b", 4, "", time.Time{})}},
		"csv quotes":      {CSV, "\"counter\",delta\n\"a,\"\"b\"\"\",1\n", []countmill.Increment{inc(`a,"b"`, 1, "", time.Time{})}},
		"csv bom, crlf":   {CSV, "\xef\xbb\xbfcounter,delta\r\na,1\r\n\r\n \r\nb,2\r\n\n", []countmill.Increment{inc("a", 1, "", time.Time{}), inc("b", 2, "", time.Time{})}},
		"csv limits":      {CSV, "counter,delta\na,9007199254740991\na,-9007199254740991\n", []countmill.Increment{inc("a", countmill.MaxDelta, "", time.Time{}), inc("a", -countmill.MaxDelta, "", time.Time{})}},
		"csv header only": {CSV, "counter,delta\n", nil},
		"ndjson": {NDJSON, "{\"counter\":\"a\"}\n\n{\"counter\":\"b\",\"delta\":-2,\"id\":\"i\",\"time\":\"2026-01-09T00:00:00Z\"}",
			[]countmill.Increment{inc("a", 1, "", time.Time{}), inc("b", -2, "i", at)}},
		"empty ndjson": {NDJSON, "", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got []countmill.Increment
			size := 0
			for _, row := range readAll(t, newReader(t, test.text, test.format)) {
				if row.Err != nil {
					t.Errorf("line %d: %v", row.Line, row.Err)
				}
				got, size = append(got, row.Inc), size+row.Size
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("rows (-want +got):\n%s", diff)
			}
			if size > len(test.text) {
				t.Errorf("the rows have %d bytes, the file %d", size, len(test.text))
			}
		})
	}
}

func TestBadRows(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 3*maxLine)
	for _, test := range []struct {
		format Format
		row    string
		want   string
	}{
		{CSV, "a", "has 1 fields, the header has 4"},
		{CSV, "a,1,,,", "has 5 fields"},
		{CSV, ",1,,", "counter is empty"},
		{CSV, "=site:a,1,,", "begins with =, as groups do"},
		{CSV, " a,1,,", "begins or ends with a space"},
		{CSV, "a\x00,1,,", "control character"},
		{CSV, "a\xff,1,,", "not valid UTF-8"},
		{CSV, "a,,,", `delta "" is not an integer`},
		{CSV, "a,++1,,", "is not an integer"},
		{CSV, "a,1.5,,", "is not an integer"},
		{CSV, "a,0x1,,", `delta "0x1" is not an integer`},
		{CSV, "a,1e3,,", "is not an integer"},
		{CSV, "a,0.0,,", "delta is 0"},
		{CSV, `a,"1,234",,`, `delta "1,234" is ambiguous: it has a separator of thousands or of a fraction (limit: -9007199254740991 to 9007199254740991, not 0, without separators)`},
		{CSV, "a,1.000,,", "is ambiguous"},
		{CSV, "a,1 234,,", "is ambiguous"},
		{CSV, "a,1\u202f234.0,,", "is ambiguous"},
		{CSV, `a,"5,0",,`, "is ambiguous"},
		{CSV, "a, 1,,", "is not an integer"},
		{CSV, "a,0,,", "delta is 0"},
		{CSV, "a,9007199254740992,,", "out of range"},
		{CSV, "a,-99999999999999999999,,", "out of range"},
		{CSV, "a,1," + strings.Repeat("i", 129) + ",", "id is too long"},
		{CSV, "a,1,,yesterday", "is not a time (limit: a time such as"},
		{CSV, "a,1,,2026-01-10T1:00:00Z", "is not a time (limit: a time such as"},
		{CSV, "a,1,,2026-01-02T12:59:59Z", "(limit: at most 191h0m0s ago): --series counts rows at their own times, and rows without times count now"},
		{CSV, "a,1,,2026-01-10T12:05:01Z", "time is in the future"},
		{CSV, "a,1,,10/01/2026", `time "10/01/2026" is ambiguous: nothing says which is the day, and which the month`},
		{CSV, "a,1,,01.10.26", "is ambiguous"},
		{CSV, "a,1,,202601091", "is not a time"}, // too few digits for seconds since 1970
		{CSV, `a"b,1,,`, "is not valid CSV"},
		{CSV, `"a,1,,`, "is not valid CSV"},
		{CSV, long, "longer than a row can be"},
		{NDJSON, `{"counter":"a","delta":0}`, "delta is 0"},
		{NDJSON, `{"counter":"a","value":1}`, "is not a field"},
		{NDJSON, `[{"counter":"a"}]`, "is an array"},
		{NDJSON, `{"counter":"a"}{"counter":"b"}`, "has text after its end"},
		{NDJSON, `{"counter":"a","time":"2026-01-02T12:59:59Z"}`, "time is beyond the deduplication window"},
		{NDJSON, `counter,delta`, "is not valid JSON"},
		{NDJSON, long, "longer than a row can be"},
	} {
		good, header := `a,1,,`, "counter,delta,id,time\n"
		if test.format == NDJSON {
			good, header = `{"counter":"a"}`, "\n"
		}
		all := readAll(t, newReader(t, header+good+"\n"+test.row+"\n"+good+"\n", test.format))
		if len(all) != 3 || all[0].Err != nil || all[2].Err != nil {
			t.Errorf("%.40s: got rows %.200v, want a bad one between two good ones", test.row, all)
			continue
		}
		if err := all[1].Err; err == nil || !strings.Contains(err.Error(), test.want) || all[1].Line != 3 {
			t.Errorf("%.40s: got line %d and error %v, want line 3 and %q", test.row, all[1].Line, err, test.want)
		}
		if len(all[1].Text) > maxLine || all[1].Size != len(test.row)+1 {
			t.Errorf("%.40s: got %d bytes of text, size %d", test.row, len(all[1].Text), all[1].Size)
		}
	}
}

func TestBadHeaders(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                       "it is empty",
		"\n\n":                   "it is empty",
		"page:/home,3\n":         `line 1: "page:/home" is not the name of a column`,
		"counter\n":              "must name the columns counter and delta",
		"counter,delta,delta\n":  "names the column delta twice",
		"\ncounter,delta,note\n": `line 2: "note" is not the name of a column`,
		"\"counter,delta\n":      "the header is not valid CSV",
		long(100) + ",delta\n":   "...",
	} {
		_, err := NewReader(strings.NewReader(text), Form{Format: CSV}, Within(began, window))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got error %v, want %q", text, err, want)
		}
	}
}

func long(n int) string { return strings.Repeat("x", n) }

func TestReadErrorIsNoEnd(t *testing.T) {
	t.Parallel()
	away := errors.New("the disk is unavailable")
	r, err := NewReader(io.MultiReader(strings.NewReader("counter,delta\na,1\nb,"), failing{away}), Form{Format: CSV}, Within(began, window))
	if err != nil {
		t.Fatal(err)
	}
	blocks := NewBlocks(r, false)
	if b, err := blocks.Next(); !errors.Is(err, away) {
		t.Errorf("got block %+v and error %v, want %v", b, err, away)
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

func TestFormatOf(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ name, file, want string }{
		{"", "a.csv", "csv"}, {"", "A.CSV", "csv"}, {"", "dir.csv/a.ndjson", "ndjson"}, {"", "a.jsonl", "ndjson"},
		{"", "A.NDJSON", "ndjson"}, {"", "a.tsv", "csv"}, {"", "a.csv.gz", ""}, {"", "csv", ""},
		{"csv", "a.ndjson", "csv"}, {"ndjson", "-", "ndjson"},
		{"", "-", ""}, {"", "a.txt", ""}, {"xml", "a.csv", ""}, {"CSV", "a", ""},
	} {
		got, err := FormatOf(test.name, test.file)
		if string(got) != test.want || (err == nil) != (test.want != "") {
			t.Errorf("FormatOf(%q, %q) = %q, %v; want %q", test.name, test.file, got, err, test.want)
		}
	}
}

// Reader reads the rows of Writer back to the same totals.
func TestTotalsComeBack(t *testing.T) {
	t.Parallel()
	totals := map[string]int64{
		"a": 1, "b,\"c\"": -7, "zero": 0, "max": 1<<63 - 1, "min": -1 << 63, "edge": countmill.MaxDelta, "over": countmill.MaxDelta + 1, "ünï": 3,
	}
	for _, format := range []Format{CSV, NDJSON} {
		var text strings.Builder
		w := NewWriter(&text, format)
		want := make(map[string]int64)
		for counter, total := range totals {
			n, err := w.Total(counter, total)
			if err != nil {
				t.Fatal(err)
			}
			if wantRows := map[string]int{"zero": 0, "over": 2, "max": 1025, "min": 1025}; n != max(wantRows[counter], 1) && total != 0 {
				t.Errorf("%s: %s takes %d rows", format, counter, n)
			}
			if total != 0 {
				want[counter] = total
			}
		}
		if err := w.Flush(); err != nil {
			t.Fatal(err)
		}
		got := make(map[string]int64)
		for _, row := range readAll(t, newReader(t, text.String(), format)) {
			if row.Err != nil {
				t.Fatalf("%s: line %d: %v", format, row.Line, row.Err)
			}
			got[row.Inc.Counter] += row.Inc.Delta
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: totals (-want +got):\n%s", format, diff)
		}
	}
}

func TestWriterTellsErrors(t *testing.T) {
	t.Parallel()
	for _, format := range []Format{CSV, NDJSON} {
		w := NewWriter(full{}, format)
		if _, err := w.Total("a", 1); err != nil {
			continue
		}
		if err := w.Flush(); !errors.Is(err, errFull) {
			t.Errorf("%s: got %v, want %v", format, err, errFull)
		}
	}
}

var errFull = errors.New("the disk is full")

type full struct{}

func (full) Write([]byte) (int, error) { return 0, errFull }

// The server reads the same increment from a request body as Reader from the row.
func TestBodiesSayWhatRowsSay(t *testing.T) {
	t.Parallel()
	const text = `{"counter":"b","delta":-5,"time":"2026-01-09T01:02:03.000004Z"}
{"counter":"a\u0022\u2028\\","delta":5}
{"counter":"f","delta":6}
{"counter":"c","id":"i\"","time":"2026-01-09T01:02:03Z"}
{"counter":"d","id":"j"}
{"counter":"e","delta":0}`
	blocks := NewBlocks(newReader(t, text, NDJSON), false)
	b, err := blocks.Next()
	if err != nil {
		t.Fatal(err)
	}
	keyed, n := b.Keyed(began)
	if want := "{\"counter\":\"b\",\"delta\":-5,\"time\":\"2026-01-09T01:02:03.000004Z\"}\n" +
		"{\"counter\":\"a\\\"\u2028\\\\\",\"delta\":5,\"time\":\"2026-01-10T12:00:00Z\"}\n" +
		"{\"counter\":\"f\",\"delta\":6}\n"; n != 3 || string(keyed) != want {
		t.Errorf("keyed: got %d rows %s, want %s", n, keyed, want)
	}
	ids, n := b.Identified(began)
	if want := "{\"counter\":\"c\",\"delta\":1,\"id\":\"i\\\"\",\"time\":\"2026-01-09T01:02:03Z\"}\n" +
		"{\"counter\":\"d\",\"delta\":1,\"id\":\"j\",\"time\":\"2026-01-10T12:00:00Z\"}\n"; n != 2 || string(ids) != want {
		t.Errorf("identified: got %d rows %s, want %s", n, ids, want)
	}
	timed, _ := (&Block{Good: b.Good[:1]}).Keyed(began)
	if !strings.HasPrefix(string(keyed), string(timed)) {
		t.Errorf("alone, the row with a time is %s", timed)
	}
	for _, body := range [][]byte{keyed, ids, timed} {
		if _, err := wire.DecodeJSON(body, wire.NDJSON, began, window); err != nil {
			t.Errorf("the server refuses %s: %v", body, err)
		}
		// The markers of the first copy may be gone by then.
		if _, err := wire.DecodeJSON(body, wire.NDJSON, began.Add(window+time.Second), window); err == nil {
			t.Errorf("beyond the deduplication window the server takes %s", body)
		}
	}
	if b.Rows != 6 || len(b.Bad) != 1 || b.Bad[0].Line != 6 || b.First != 1 || b.Last != 6 {
		t.Errorf("got block %+v", b)
	}
}

// All parts of a keyed request are as young as its youngest increment. So a time on one row is enough
// to make the whole request too old for the deduplication window.
func TestOneTimeIsEnough(t *testing.T) {
	t.Parallel()
	var text strings.Builder
	for i := range 100 {
		fmt.Fprintf(&text, "{\"counter\":\"c%d\"}\n", i)
	}
	b, err := NewBlocks(newReader(t, text.String(), NDJSON), false).Next()
	if err != nil {
		t.Fatal(err)
	}
	body, _ := b.Keyed(began)
	incs, err := wire.DecodeJSON(body, wire.NDJSON, began, window)
	if err != nil {
		t.Fatal(err)
	}
	parts, err := wire.CutRequest("", "k", incs)
	if err != nil || len(parts) < 5 {
		t.Fatalf("got %d parts, %v", len(parts), err)
	}
	for i, part := range parts {
		if !part.Time.Equal(began) {
			t.Errorf("part %d has time %s, want %s", i, part.Time, began)
		}
	}
}
