package wire

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/countmill/countmill"
)

func TestPlainObject(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]countmill.Increment{
		`{"counter":"a"}`:                                         {Counter: "a", Delta: 1},
		`{"counter":"page:/u/1","delta":5}`:                       {Counter: "page:/u/1", Delta: 5},
		` { "counter" : "a b" , "delta" : -999999999999999 } `:    {Counter: "a b", Delta: -999999999999999},
		"\t{\t\"counter\"\t:\t\"}{,:\"\t,\t\"delta\"\t:\t10\t}\t": {Counter: "}{,:", Delta: 10},
	} {
		var got countmill.Increment
		rest, ok := plainObject(text, &got)
		if diff := cmp.Diff(want, got); !ok || !plainEnd(rest) || diff != "" {
			t.Errorf("%s: ok %t, rest %q (-want +got):\n%s", text, ok, rest, diff)
		}
	}
}

// notPlain has texts that the strict reader must decide about.
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

func TestPlainObjectLeavesTheRestToTheReader(t *testing.T) {
	t.Parallel()
	for _, text := range notPlain {
		var inc countmill.Increment
		if _, ok := plainObject(text, &inc); ok {
			t.Errorf("%s was read as %+v", text, inc)
		}
	}
}

// FuzzPlainObject: jsonReader reads every object that the fast path accepts, with the same
// result.
func FuzzPlainObject(f *testing.F) {
	for _, text := range notPlain {
		f.Add(text)
	}
	f.Add(`{"counter":"a","delta":-3} `)
	f.Add("\t{ \"counter\" : \"a b\" , \"delta\" : 999999999999999 }\r")
	f.Fuzz(func(t *testing.T, text string) {
		var got, want countmill.Increment
		rest, ok := plainObject(text, &got)
		if !ok || !plainEnd(rest) {
			return
		}
		r := &jsonReader{now: epoch, window: countmill.DefaultDedupWindow}
		r.reset([]byte(text))
		ferr := r.object(&want)
		if ferr == nil {
			ferr = r.end(wantLine)
		}
		if ferr != nil {
			t.Fatalf("%q was read as %+v, the reader says: %v", text, got, ferr)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("%q (-reader +plain):\n%s", text, diff)
		}
	})
}
