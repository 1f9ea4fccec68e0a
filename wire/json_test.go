package wire

import (
	"errors"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/countmill/countmill"
)

func decodeJSON(body string, form Form) ([]countmill.Increment, error) {
	return DecodeJSON([]byte(body), form, epoch, countmill.DefaultDedupWindow)
}

func TestDecodeJSON(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		form Form
		body string
		want []countmill.Increment
	}{
		{"object", JSON, `{"counter":"a"}`, []countmill.Increment{{Counter: "a", Delta: 1}}},
		{"spaces", JSON, " {\t\"counter\" : \"a\" ,\n\"delta\" : 2 } \r\n", []countmill.Increment{{Counter: "a", Delta: 2}}},
		{"array", JSON, `[{"counter":"a"},{"delta":-9007199254740991,"counter":"a"}]`,
			[]countmill.Increment{{Counter: "a", Delta: 1}, {Counter: "a", Delta: -countmill.MaxDelta}}},
		{"all fields", JSON, `{"counter":"a//b","delta":9007199254740991,"id":"x","time":"2023-11-14T23:13:20.5+01:00"}`,
			[]countmill.Increment{{Counter: "a//b", Delta: countmill.MaxDelta, ID: "x", Time: epoch.Add(500 * time.Millisecond).UTC()}}},
		{"escapes", JSON, `{"\u0063ounter":"\ud83d\ude00\u00e9\/"}`, []countmill.Increment{{Counter: "😀é/", Delta: 1}}},
		{"one line", NDJSON, `{"counter":"a"}`, []countmill.Increment{{Counter: "a", Delta: 1}}},
		{"lines", NDJSON, "{\"counter\":\"a\"}\r\n {\"counter\":\"b\"} \n\n \n",
			[]countmill.Increment{{Counter: "a", Delta: 1}, {Counter: "b", Delta: 1}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			got, err := decodeJSON(tc.body, tc.form)
			if err != nil {
				t.Fatal(err)
			}
			for _, inc := range got { // a zone kept would be memory kept
				if inc.Time.Location() != time.UTC {
					t.Errorf("got a time in %s, want UTC", inc.Time.Location())
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("increments differ (-want +got):\n%s", diff)
			}
		})
	}
}

// Each row has a body that is refused, and the same body with the defect fixed, which is
// accepted. So the named defect is the reason.
func TestDecodeJSONRefuses(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("n", 501)
	for _, tc := range []struct {
		name, body, mended    string
		field, problem, limit string
	}{
		{"empty body", ``, `{"counter":"a"}`, "body", "is empty", wantSome},
		{"blank body", " \n", ` {"counter":"a"}`, "body", "is empty", wantSome},
		{"empty array", `[]`, `[{"counter":"a"}]`, "body", "is an empty array", wantSome},
		{"null body", `null`, `{"counter":"a"}`, "body", "is null", wantBody},
		{"string body", `"a"`, `{"counter":"a"}`, "body", "is a string", wantBody},
		{"not JSON", `counter=a`, `{"counter":"a"}`, "body", "is not valid JSON", wantBody},
		{"byte order mark", "\ufeff" + `{"counter":"a"}`, `{"counter":"a"}`, "body", "is not valid JSON", wantBody},
		{"two objects", `{"counter":"a"}{"counter":"b"}`, `[{"counter":"a"},{"counter":"b"}]`, "body", "has text after its end", "array"},
		{"two lines", "{\"counter\":\"a\"}\n{\"counter\":\"b\"}", `{"counter":"a"}`, "body", "has text after its end", "application/x-ndjson"},
		{"two arrays", `[{"counter":"a"}][{"counter":"b"}]`, `[{"counter":"a"}]`, "body", "has text after its end", "array"},
		{"trailing data", `{"counter":"a"} x`, `{"counter":"a"} `, "body", "has text after its end", "array"},
		{"truncated", `{"counter":"a"`, `{"counter":"a"}`, "body", "ends too early", "complete JSON"},
		{"truncated in a string", `{"counter":"a`, `{"counter":"a"}`, "body", "ends too early", "complete JSON"},
		{"truncated after a name", `{"counter"`, `{"counter":"a"}`, "body", "ends too early", "complete JSON"},
		{"truncated array", `[{"counter":"a"},{"counter":"b"}`, `[{"counter":"a"},{"counter":"b"}]`, "body", "ends too early", "complete JSON"},
		{"no comma", `{"counter":"a" "delta":1}`, `{"counter":"a","delta":1}`, "body", `is not valid JSON near byte 15: invalid character '"'`, wantObject},
		{"trailing comma", `{"counter":"a",}`, `{"counter":"a"}`, "body", "is not valid JSON", wantObject},

		{"no counter", `{"delta":1}`, `{"counter":"a","delta":1}`, "counter", "is missing", "1 to 500 bytes"},
		{"null counter", `{"counter":null}`, `{"counter":"null"}`, "counter", "is null", "a string"},
		{"number as counter", `{"counter":1}`, `{"counter":"1"}`, "counter", "is a number", "a string"},
		{"object as counter", `{"counter":{"counter":"a"}}`, `{"counter":"a"}`, "counter", "is an object", "a string"},
		{"empty counter", `{"counter":""}`, `{"counter":"a"}`, "counter", "is empty", "1 to 500 bytes"},
		{"long counter", `{"counter":"` + long + `"}`, `{"counter":"` + long[1:] + `"}`, "counter", "is too long", "1 to 500 bytes"},
		{"control character", `{"counter":"a\u0007"}`, `{"counter":"a\\u0007"}`, "counter", "holds a control character", "no control characters"},
		{"raw control character", "{\"counter\":\"a\x07\"}", `{"counter":"a"}`, "counter", "is not valid JSON", "a string"},
		{"padded counter", `{"counter":"a "}`, `{"counter":"a b"}`, "counter", "begins or ends with a space", "no leading or trailing space"},
		{"reserved counter", `{"counter":"__a__"}`, `{"counter":"__a_"}`, "counter", "has the reserved form __x__", "not __x__"},
		{"group", `{"counter":"=site:a"}`, `{"counter":"a=site"}`, "counter", "begins with =, as groups do", "a counter that is no group"},
		{"not UTF-8", "{\"counter\":\"a\xff\"}", "{\"counter\":\"a\u00ff\"}", "counter", "is not valid JSON near byte 13: invalid UTF-8", "valid UTF-8"},
		{"lone high surrogate", `{"counter":"\ud83d"}`, `{"counter":"\ud83d\ude00"}`, "counter", "is not valid JSON", "valid UTF-8"},
		{"lone low surrogate", `{"counter":"\ude00"}`, `{"counter":"\ud83d\ude00"}`, "counter", "is not valid JSON", "valid UTF-8"},
		{"surrogate in id", `{"counter":"a","id":"\ud83d"}`, `{"counter":"a","id":"\ud83d\ude00"}`, "id", "is not valid JSON", "valid UTF-8"},

		{"unknown field", `{"counter":"a","by":2}`, `{"counter":"a","delta":2}`, "by", "is not a field", "counter, delta, id, time"},
		{"empty field name", `{"counter":"a","":2}`, `{"counter":"a","delta":2}`, `""`, "is not a field", "counter, delta, id, time"},
		{"long field name", `{"counter":"a","` + strings.Repeat("é", 60) + `":2}`, `{"counter":"a"}`, strings.Repeat("é", 32) + "...", "is not a field", wantFields},
		{"differently-cased field", `{"Counter":"a"}`, `{"counter":"a"}`, "Counter", "is not a field: write counter", "counter, delta, id, time"},
		{"repeated field", `{"counter":"a","counter":"a"}`, `{"counter":"a"}`, "counter", "is given more than once", "each field once"},
		{"repeated field, escaped", `{"delta":1,"counter":"a","d\u0065lta":1}`, `{"delta":1,"counter":"a"}`, "delta", "is given more than once", "each field once"},

		{"delta 0x1", `{"counter":"a","delta":0x1}`, `{"counter":"a","delta":1}`, "delta", "is not an integer literal", "-9007199254740991 to 9007199254740991, not 0"},
		{"delta 5_000", `{"counter":"a","delta":5_000}`, `{"counter":"a","delta":5000}`, "delta", "is not an integer literal", "-9007199254740991 to 9007199254740991, not 0"},
		{"delta 0", `{"counter":"a","delta":0}`, `{"counter":"a","delta":1}`, "delta", "is 0", "not 0"},
		{"delta -0", `{"counter":"a","delta":-0}`, `{"counter":"a","delta":-1}`, "delta", "is 0", "not 0"},
		{"delta 1.5", `{"counter":"a","delta":1.5}`, `{"counter":"a","delta":15}`, "delta", "is not an integer literal", "integer"},
		{"delta 1.0", `{"counter":"a","delta":1.0}`, `{"counter":"a","delta":1}`, "delta", "is not an integer literal", "integer"},
		{"delta 1e3", `{"counter":"a","delta":1e3}`, `{"counter":"a","delta":1000}`, "delta", "is not an integer literal", "integer"},
		{"delta 01", `{"counter":"a","delta":01}`, `{"counter":"a","delta":1}`, "delta", "begins with 0", "integer"},
		{"delta -01", `{"counter":"a","delta":-01}`, `{"counter":"a","delta":-1}`, "delta", "begins with 0", "integer"},
		{"delta +1", `{"counter":"a","delta":+1}`, `{"counter":"a","delta":1}`, "delta", "is not valid JSON", "integer"},
		{"delta NaN", `{"counter":"a","delta":NaN}`, `{"counter":"a","delta":1}`, "delta", "is not valid JSON", "integer"},
		{"delta -", `{"counter":"a","delta":-}`, `{"counter":"a","delta":-1}`, "delta", "is not valid JSON", "integer"},
		{"string as delta", `{"counter":"a","delta":"3"}`, `{"counter":"a","delta":3}`, "delta", "is a string", "integer"},
		{"boolean as delta", `{"counter":"a","delta":true}`, `{"counter":"a","delta":1}`, "delta", "is a boolean", "integer"},
		{"null delta", `{"counter":"a","delta":null}`, `{"counter":"a"}`, "delta", "is null", "integer"},
		{"array as delta", `{"counter":"a","delta":[1]}`, `{"counter":"a","delta":1}`, "delta", "is an array", "integer"},
		{"delta 2^53", `{"counter":"a","delta":9007199254740992}`, `{"counter":"a","delta":9007199254740991}`, "delta", "is out of range", "-9007199254740991 to 9007199254740991"},
		{"delta -2^53", `{"counter":"a","delta":-9007199254740992}`, `{"counter":"a","delta":-9007199254740991}`, "delta", "is out of range", "-9007199254740991 to 9007199254740991"},
		{"delta 2^64+1", `{"counter":"a","delta":18446744073709551617}`, `{"counter":"a","delta":1}`, "delta", "is out of range", "-9007199254740991 to 9007199254740991"},
		{"delta of 40 digits", `{"counter":"a","delta":-1` + strings.Repeat("0", 40) + `}`, `{"counter":"a","delta":-1}`, "delta", "is out of range", "-9007199254740991 to 9007199254740991"},

		{"empty id", `{"counter":"a","id":""}`, `{"counter":"a"}`, "id", "is empty", "1 to 128 bytes"},
		{"long id", `{"counter":"a","id":"` + long[:129] + `"}`, `{"counter":"a","id":"` + long[:128] + `"}`, "id", "is too long", "1 to 128 bytes"},
		{"control character in id", `{"counter":"a","id":"\u0000"}`, `{"counter":"a","id":"0"}`, "id", "holds a control character", "no control characters"},
		{"number as id", `{"counter":"a","id":7}`, `{"counter":"a","id":"7"}`, "id", "is a number", "a string"},

		{"bad time", `{"counter":"a","time":"yesterday"}`, `{"counter":"a","time":"2023-11-14T22:13:20Z"}`, "time", "is not a time", "RFC 3339"},
		{"empty time", `{"counter":"a","time":""}`, `{"counter":"a"}`, "time", "is not a time", "RFC 3339"},
		{"number as time", `{"counter":"a","time":1700000000}`, `{"counter":"a","time":"2023-11-14T22:13:20Z"}`, "time", "is a number", "RFC 3339"},
		{"time without zone", `{"counter":"a","time":"2023-11-14T22:13:20"}`, `{"counter":"a","time":"2023-11-14T22:13:20Z"}`, "time", "is not a time", "RFC 3339"},
		{"time with one-digit hour", `{"counter":"a","time":"2023-11-14T2:13:20Z"}`, `{"counter":"a","time":"2023-11-14T02:13:20Z"}`, "time", "is not a time", "RFC 3339"},
		{"time with a comma", `{"counter":"a","time":"2023-11-14T22:13:20,5Z"}`, `{"counter":"a","time":"2023-11-14T22:13:20.5Z"}`, "time", "is not a time", "RFC 3339"},
		{"time with a zone of 24 hours", `{"counter":"a","time":"2023-11-15T22:13:20+24:00"}`, `{"counter":"a","time":"2023-11-14T22:13:20+00:00"}`, "time", "is not a time", "RFC 3339"},
		{"time with a zone of 60 minutes", `{"counter":"a","time":"2023-11-14T23:13:20+00:60"}`, `{"counter":"a","time":"2023-11-14T22:13:20-00:00"}`, "time", "is not a time", "RFC 3339"},
		{"the zero time", `{"counter":"a","time":"0001-01-01T00:00:00Z"}`, `{"counter":"a","time":"2023-11-14T22:13:20Z"}`, "time", "is beyond the deduplication window", "at most 192h0m0s ago"},
		{"time beyond the deduplication window", `{"counter":"a","time":"2023-11-06T22:13:19Z"}`, `{"counter":"a","time":"2023-11-06T22:13:20Z"}`, "time", "is beyond the deduplication window", "at most 192h0m0s ago"},
		{"time ahead", `{"counter":"a","time":"2023-11-14T22:18:21Z"}`, `{"counter":"a","time":"2023-11-14T22:18:20Z"}`, "time", "is in the future", "at most 5m0s ahead"},

		{"nested array", `[[{"counter":"a"}]]`, `[{"counter":"a"}]`, "increment", "is an array", wantObject},
		{"null in array", `[null]`, `[{"counter":"a"}]`, "increment", "is null", wantObject},
		{"comma in array", `[{"counter":"a"},]`, `[{"counter":"a"}]`, "increment", "is not valid JSON", wantObject},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			ferr := refused(t, tc.body, JSON)
			if ferr.Field != tc.field || !strings.HasPrefix(ferr.Problem, tc.problem) || !strings.Contains(ferr.Limit, tc.limit) {
				t.Errorf("got field %q, problem %q, limit %q; want %q, %q..., ...%q...",
					ferr.Field, ferr.Problem, ferr.Limit, tc.field, tc.problem, tc.limit)
			}
			if ferr.Line != nil {
				t.Errorf("got line %d where there are no lines", *ferr.Line)
			}
			if _, err := decodeJSON(tc.mended, JSON); err != nil {
				t.Errorf("fixed body is refused: %v", err)
			}
		})
	}
}

// refused decodes a body that must be refused whole, and returns why.
func refused(t *testing.T, body string, form Form) *countmill.FieldError {
	t.Helper()
	incs, err := decodeJSON(body, form)
	if !errors.Is(err, countmill.ErrInvalid) || incs != nil {
		t.Fatalf("got %v and error %v, want no increments and ErrInvalid", incs, err)
	}
	ferr, ok := errors.AsType[*countmill.FieldError](err)
	if !ok {
		t.Fatalf("got error %v of type %T, want a *FieldError", err, err)
	}
	return ferr
}

func TestDecodeJSONReportsThePlace(t *testing.T) {
	t.Parallel()
	array := func(last string) string { return `[{"counter":"a"},{"counter":"b"},` + last + `]` }
	lines := func(last string) string { return "{\"counter\":\"a\"}\n{\"counter\":\"b\"}\r\n" + last + "\n" }
	for _, tc := range []struct{ name, last, field, problem string }{
		{"value", `{"counter":"c","delta":0}`, "delta", "is 0"},
		{"syntax", `{"counter":NaN}`, "counter", "is not valid JSON"},
		{"kind", `7`, "increment", "is a number"},
		{"field", `{"Counter":"c"}`, "Counter", "is not a field"},
		{"missing", `{}`, "counter", "is missing"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			ferr := refused(t, array(tc.last), JSON)
			if ferr.Index == nil || *ferr.Index != 2 || ferr.Line != nil || ferr.Field != tc.field || !strings.HasPrefix(ferr.Problem, tc.problem) {
				t.Errorf("array: got %v, want increment 2: %s %s", ferr, tc.field, tc.problem)
			}
			ferr = refused(t, lines(tc.last), NDJSON)
			if ferr.Line == nil || *ferr.Line != 3 || ferr.Index != nil || ferr.Field != tc.field || !strings.HasPrefix(ferr.Problem, tc.problem) {
				t.Errorf("lines: got %v, want line 3: %s %s", ferr, tc.field, tc.problem)
			}
		})
	}
	if ferr := refused(t, `{"counter":""}`, JSON); ferr.Index != nil {
		t.Errorf("single object: got index %d, want none", *ferr.Index)
	}
}

func TestDecodeNDJSONRefuses(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, body, mended string
		line               int
		problem            string
	}{
		{"empty", "\n\n", "{\"counter\":\"a\"}\n\n", 0, "is empty"},
		{"blank line first", "\n{\"counter\":\"a\"}", "{\"counter\":\"a\"}", 1, "is blank"},
		{"blank line between", "{\"counter\":\"a\"}\n \n{\"counter\":\"b\"}", "{\"counter\":\"a\"}\n{\"counter\":\"b\"}", 2, "is blank"},
		{"two on a line", "{\"counter\":\"a\"}\n{\"counter\":\"b\"} {\"counter\":\"c\"}", "{\"counter\":\"a\"}\n{\"counter\":\"b\"}\n{\"counter\":\"c\"}", 2, "has text after its end"},
		{"an array", `[{"counter":"a"}]`, `{"counter":"a"}`, 1, "is an array"},
		{"one object on two lines", "{\"counter\":\n\"a\"}", `{"counter":"a"}`, 1, "ends too early"},
		{"truncated", "{\"counter\":\"a\"}\n{\"counter\":\"b\"", "{\"counter\":\"a\"}\n{\"counter\":\"b\"}", 2, "ends too early"},
		{"separated by return alone", "{\"counter\":\"a\"}\r{\"counter\":\"b\"}", "{\"counter\":\"a\"}\r\n{\"counter\":\"b\"}", 1, "has text after its end"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			ferr := refused(t, tc.body, NDJSON)
			line := 0
			if ferr.Line != nil {
				line = *ferr.Line
			}
			if line != tc.line || ferr.Problem != tc.problem {
				t.Errorf("got line %d, %q; want line %d, %q", line, ferr.Problem, tc.line, tc.problem)
			}
			if _, err := decodeJSON(tc.mended, NDJSON); err != nil {
				t.Errorf("fixed body is refused: %v", err)
			}
		})
	}
}

// A hostile body must not make the decoder ask for memory that no honest body of its
// size could need.
func TestDecodeJSONMemoryIsBounded(t *testing.T) {
	const size = 1 << 20
	for name, body := range map[string]string{
		"open braces":   "[" + strings.Repeat("{", size),
		"nested arrays": strings.Repeat("[", size),
		"empty lines":   strings.Repeat("\n", size) + "x",
		"braces inside": `[{"counter":"` + strings.Repeat("{", size) + `"}]`,
	} {
		for _, form := range []Form{JSON, NDJSON} {
			text := []byte(body)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := DecodeJSON(text, form, epoch, time.Hour)
			runtime.ReadMemStats(&after)
			if err == nil {
				t.Errorf("%s, form %d: accepted", name, form)
			}
			if got := after.TotalAlloc - before.TotalAlloc; got > 6*size {
				t.Errorf("%s, form %d: %d bytes allocated for a body of %d", name, form, got, size)
			}
		}
	}
}

func TestDecodeJSONKeepsNothingOfBody(t *testing.T) {
	t.Parallel()
	for text, form := range map[string]Form{
		`[{"counter":"abc","id":"xyz"}]`:                              JSON,
		`{"counter":"abc"}`:                                           JSON,
		"{\"counter\":\"abc\"}\n{\"counter\":\"abc\",\"id\":\"xyz\"}": NDJSON,
	} {
		body := []byte(text)
		incs, err := DecodeJSON(body, form, epoch, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		for i := range body {
			body[i] = '#'
		}
		for _, inc := range incs {
			if inc.Counter != "abc" || inc.ID != "" && inc.ID != "xyz" {
				t.Errorf("%s: got %+v after body was overwritten, want it unchanged", text, inc)
			}
		}
	}
}

// Decoders are used again: no call gets a decoder that another call still uses.
func TestDecodeJSONByManyAtOnce(t *testing.T) {
	t.Parallel()
	var callers sync.WaitGroup
	for i := range 8 {
		counter := strings.Repeat(strconv.Itoa(i), 400)
		body := []byte(`[{"counter":"` + counter + `"}]`)
		callers.Go(func() {
			for range 500 {
				if incs, err := DecodeJSON(body, JSON, epoch, time.Hour); err != nil || len(incs) != 1 || incs[0].Counter != counter {
					t.Errorf("caller %d: got %v, %v", i, incs, err)
					return
				}
			}
		})
	}
	callers.Wait()
}

func BenchmarkDecodeJSON(b *testing.B) {
	object := `{"counter":"page:/home","delta":3}`
	const many = 1000
	for _, bc := range []struct {
		name string
		form Form
		body string
		n    int
	}{
		{"object", JSON, object, 1},
		{"array", JSON, "[" + strings.Repeat(object+",", many-1) + object + "]", many},
		{"lines", NDJSON, strings.Repeat(object+"\n", many), many},
	} {
		b.Run(bc.name, func(b *testing.B) {
			b.ReportAllocs()
			body := []byte(bc.body)
			for b.Loop() {
				if _, err := DecodeJSON(body, bc.form, epoch, time.Hour); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*bc.n), "ns/increment")
		})
	}
}
