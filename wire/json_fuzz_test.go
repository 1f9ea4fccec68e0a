package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"regexp"
	"slices"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/countmill/countmill"
)

// FuzzDecodeJSON compares with a strict decoder on encoding/json: both accept the same
// texts, and read the same in them.
func FuzzDecodeJSON(f *testing.F) {
	for _, body := range []string{
		`{"counter":"a"}`, ` [ {"counter":"a"} ] `,
		`[{"counter":"a","delta":-3,"id":"x","time":"2023-11-14T22:13:20Z"},{"counter":"\ud83d\ude00"}]`,
		"{\"counter\":\"a\"}\r\n{\"delta\":2,\"counter\":\"b\"}\n\n",
		`{"counter":"a","delta":1e3}`, `{"Counter":"a"}`, `{"counter":"\ud800"}`, "{\"counter\":\"\xff\"}", `[null]`,
		`{"counter":"a","delta":-0}`, `{"counter":"\\ud800"}`, `{"\u0063ounter":"a"}`, `{"counter":"a","counter":"b"}`,
		`{"counter":"a","time":"2023-11-14T22:13:20.5+01:00"}`, `{"counter":"a","time":"2023-11-14T2:13:20Z"}`, "{\"counter\":\n\"a\"}",
	} {
		f.Add([]byte(body), false)
		f.Add([]byte(body), true)
	}
	for _, body := range slices.Concat(plain, notPlain) {
		f.Add([]byte(body), false)
		f.Add([]byte(body), true)
	}
	f.Fuzz(func(t *testing.T, body []byte, lines bool) {
		form := JSON
		if lines {
			form = NDJSON
		}
		got, err := DecodeJSON(body, form, epoch, countmill.DefaultDedupWindow)
		if err != nil {
			if _, ok := errors.AsType[*countmill.FieldError](err); !ok {
				t.Fatalf("error %v of type %T, want a *FieldError", err, err)
			}
		}
		want, wantErr := strictly(body, form)
		if (err == nil) != (wantErr == nil) {
			t.Fatalf("%q: we say %v, encoding/json with strict rules says %v", body, err, wantErr)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("values differ from encoding/json (-its +ours):\n%s", diff)
		}
	})
}

// strictly reads body with encoding/json, and adds only the rules that it lacks.
func strictly(body []byte, form Form) ([]countmill.Increment, error) {
	const space = " \t\r\n"
	texts := [][]byte{body}
	if form == NDJSON {
		texts = bytes.Split(bytes.TrimRight(body, space), []byte("\n"))
	} else if bytes.HasPrefix(bytes.TrimLeft(body, space), []byte("[")) {
		var elements []json.RawMessage
		if err := json.Unmarshal(body, &elements); err != nil {
			return nil, err
		}
		if len(elements) == 0 {
			return nil, errors.New("no increments")
		}
		texts = nil
		for _, e := range elements {
			texts = append(texts, e)
		}
	}
	var incs []countmill.Increment
	for _, text := range texts {
		inc, err := strictObject(text)
		if err != nil {
			return nil, err
		}
		incs = append(incs, inc)
	}
	return incs, nil
}

func strictObject(text []byte) (inc countmill.Increment, err error) {
	if !json.Valid(text) || !utf8.Valid(text) || loneSurrogate(string(text)) {
		return inc, errors.New("not valid JSON in valid UTF-8")
	}
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	if open, err := dec.Token(); err != nil || open != json.Delim('{') {
		return inc, fmt.Errorf("begins with %v, %v", open, err)
	}
	inc.Delta = 1
	seen := make(map[string]bool)
	for dec.More() {
		name, err := dec.Token()
		if err != nil {
			return inc, err
		}
		value, err := dec.Token()
		if err != nil {
			return inc, err
		}
		field := name.(string)
		if seen[field] {
			return inc, fmt.Errorf("%q twice", field)
		}
		seen[field] = true
		if err := strictField(&inc, field, value); err != nil {
			return inc, err
		}
	}
	if _, err := dec.Token(); err != nil {
		return inc, err
	}
	if _, err := dec.Token(); err != io.EOF {
		return inc, errors.New("something follows")
	}
	if !seen["counter"] {
		return inc, errors.New("no counter")
	}
	return inc, nil
}

var (
	integerLiteral = regexp.MustCompile(`^-?(0|[1-9][0-9]*)$`)
	rfc3339        = regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]([01]\d|2[0-3]):[0-5]\d)$`)
)

func strictField(inc *countmill.Increment, field string, value json.Token) error {
	text, isText := value.(string)
	number, isNumber := value.(json.Number)
	switch {
	case field == "counter" && isText:
		inc.Counter = text
		return countmill.CheckCounter(text)
	case field == "id" && isText:
		inc.ID = text
		return countmill.CheckID("id", text)
	case field == "time" && isText:
		var at time.Time
		if err := at.UnmarshalText([]byte(text)); err != nil || !rfc3339.MatchString(text) {
			return fmt.Errorf("time %q: %w", text, err)
		}
		inc.Time = at.UTC()
		return countmill.CheckTime(at, epoch, countmill.DefaultDedupWindow)
	case field == "delta" && isNumber && integerLiteral.MatchString(number.String()):
		n, _ := new(big.Int).SetString(number.String(), 10)
		if n.Sign() == 0 || n.CmpAbs(big.NewInt(1<<53-1)) > 0 {
			return fmt.Errorf("delta %s", n)
		}
		inc.Delta = n.Int64()
		return nil
	}
	return fmt.Errorf("field %q is %v", field, value)
}

var (
	escape    = regexp.MustCompile(`\\(u[0-9a-fA-F]{4}|.)`)
	pair      = regexp.MustCompile(`^\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}`)
	surrogate = regexp.MustCompile(`^\\u[dD][89a-fA-F]`)
)

// loneSurrogate finds half a pair of escapes, which encoding/json reads as U+FFFD.
func loneSurrogate(text string) bool {
	for {
		at := escape.FindStringIndex(text)
		if at == nil {
			return false
		}
		text = text[at[0]:]
		if p := pair.FindString(text); p != "" {
			text = text[len(p):]
			continue
		}
		if surrogate.MatchString(text) {
			return true
		}
		text = text[at[1]-at[0]:]
	}
}

// plain has texts that the fast path reads.
var plain = []string{
	`{"counter":"page:/u/1","delta":5}`, ` { "counter" : "a b" , "delta" : -999999999999999 } `,
	"\t{\t\"counter\"\t:\t\"}{,:\"\t,\t\"delta\"\t:\t10\t}\t", "{ \"counter\" : \"a b\" , \"delta\" : 999999999999999 }\r",
}

// notPlain has texts that the fast path leaves to the strict reader.
var notPlain = []string{
	"", " ", "{", "{}", "x", "[", `{"counter"`, `{"counter":`, `{"counter":"`, `{"counter":"a`, `{"counter":"a"`, `{"counter":"a",`,
	`{"counter":""}`, `{"counter":" a"}`, `{"counter":"a "}`, `{"counter":"__a__"}`, `{"counter":"ü"}`, `{"counter":"a\u0062"}`,
	"{\"counter\":\"a\tb\"}", "{\"counter\":\"a\x7f\"}", "{\"counter\":\"\xff\"}", "{\n\"counter\":\"a\"}",
	`{"counter":"a","delta":0}`, `{"counter":"a","delta":-0}`, `{"counter":"a","delta":01}`, `{"counter":"a","delta":- 1}`,
	`{"counter":"a","delta":+1}`, `{"counter":"a","delta":1.0}`, `{"counter":"a","delta":1e3}`, `{"counter":"a","delta":"1"}`,
	`{"counter":"a","delta":1000000000000000}`, `{"counter":"a","delta":}`, `{"counter":"a","delta":-}`, `{"counter":"a","delta":null}`,
	`{"counter":"a","delta":1,}`, `{"counter":"a",}`, `{"counter":"a","delta":1,"delta":1}`, `{"counter":"a","counter":"a"}`,
	`{"counter":"a","id":"x"}`, `{"delta":1,"counter":"a"}`, `{"Counter":"a"}`, `{"counter":"a","Delta":1}`, `{"counter":'a'}`,
	`{counter:"a"}`, `{"counter" "a"}`, `{"counter":"a","delta" 5}`, `{"counter":"a",:5}`, `{"counter":"a","delta":5`, `{"counter":"a" "delta":1}`, "\ufeff{\"counter\":\"a\"}", `{{"counter":"a"}`,
}
