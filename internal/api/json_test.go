package api

import (
	"bytes"
	"encoding/json"
	"math"
	"reflect"
	"testing"
	"time"

	strict "github.com/go-json-experiment/json"

	"github.com/countmill/countmill/client"
	"github.com/countmill/countmill/internal/httpserver"
	"github.com/countmill/countmill/reader"
	"github.com/countmill/countmill/store/int128"
)

// Answers that are written by hand have every field of the type that clients decode, and no other.
func TestHandwrittenAnswers(t *testing.T) {
	t.Parallel()
	one := 1.5
	checkHandwritten[client.Totals](t, func(full bool) []byte {
		return (&totals{totals: filled[[]reader.Total](full), lag: &one, unseen: &one, after: true, deadLetters: filled[[]reader.DeadLetterRef](true)}).AppendJSON(nil)
	}, "Totals.Rate") // of watchers alone
	checkHandwritten[client.CounterTotal](t, func(full bool) []byte {
		some := filled[[]reader.Total](full)
		some[0].Overflow = false // a problem answers it
		return (&counter{totals: some, lag: &one, unseen: &one, after: true, deadLetters: filled[[]reader.DeadLetterRef](true)}).AppendJSON(nil)
	})
	checkHandwritten[client.Page](t, func(full bool) []byte {
		return (&page{Page: filled[reader.Page](full), lag: &one}).AppendJSON(nil)
	}, "Totals.Rate")
	checkHandwritten[client.Accepted](t, func(full bool) []byte {
		return (&counted{accepted: accepted{1, "r", time.UnixMicro(1e15 + 1)}, totals: filled[[]reader.Total](full), read: true}).AppendJSON(nil)
	}, "Totals.Rate")
	checkHandwritten[client.Removed](t, func(full bool) []byte {
		r := removed{counter: "a"}
		r.At, r.Existed, r.Removed = time.UnixMicro(1e15+1), full, int128.Of(1)
		if full {
			r.Removed = int128.Of(math.MaxInt64).Add(int128.Of(1))
		}
		return r.AppendJSON(nil)
	})
	checkHandwritten[client.Top](t, func(full bool) []byte { return (&topAnswer{Top: filled[reader.Top](full)}).AppendJSON(nil) })
	checkHandwritten[client.Rank](t, func(full bool) []byte { return (&rankAnswer{Rank: filled[reader.Rank](full)}).AppendJSON(nil) })
	checkHandwritten[[]client.Row](t, func(full bool) []byte {
		r := rows{filled[reader.Series](full), seriesCall{}}
		r.Rows[0].Time, r.Rows[0].End, r.AsOf = time.Unix(1e9, 0).UTC(), time.Unix(2e9, 0), time.Unix(3e9, 0)
		return r.AppendJSON(nil)
	})
	checkHandwritten[client.WatchEvent](t, func(full bool) []byte {
		v := view{limit: 1, rates: true}
		b := &snapshot{more: true, pipeline: reader.Pipeline{Workers: 1, Lag: time.Second, RatesKnown: true, Entries: 2, Commits: 3}}
		b.rows = []row{{Total: filled[reader.Total](full), rate: 4, rated: true}}
		var event bytes.Buffer
		if err := v.write(&event, &snapshot{rows: []row{{Total: reader.Total{Counter: "b"}}}}, b, v.ending(b)); err != nil {
			t.Fatal(err)
		}
		return bytes.TrimPrefix(event.Bytes(), []byte("event: totals\ndata: "))
	})
}

// checkHandwritten compares an answer with its type: with all flags set, and with none. Both together have all fields, but for the ones
// that it never has.
func checkHandwritten[T any](t *testing.T, write func(full bool) []byte, never ...string) {
	t.Helper()
	missing := make(map[string]int)
	for _, full := range []bool{true, false} {
		text := write(full)
		var v T
		if err := strict.Unmarshal(text, &v, strict.RejectUnknownMembers(true)); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		missingFields(reflect.ValueOf(v), "", missing)
	}
	for _, name := range never {
		missing["."+name]--
	}
	for name, n := range missing {
		if n > 1 || n < 0 {
			t.Errorf("the hand-written answer of %T: field %s is missing, or is expected to be", *new(T), name)
		}
	}
}

// missingFields counts fields without a value.
func missingFields(v reflect.Value, name string, missing map[string]int) {
	switch {
	case v.IsZero():
		missing[name]++
	case v.Kind() == reflect.Pointer:
		missingFields(v.Elem(), name, missing)
	case v.Kind() == reflect.Slice:
		missingFields(v.Index(0), name, missing)
	case v.Kind() == reflect.Struct && v.Type() != reflect.TypeFor[time.Time]():
		for i := range v.NumField() {
			missingFields(v.Field(i), name+"."+v.Type().Field(i).Name, missing)
		}
	}
}

// filled is a value with something in each exported field.
func filled[T any](flags bool) (v T) {
	fill(reflect.ValueOf(&v).Elem(), flags)
	return v
}

func fill(v reflect.Value, flags bool) {
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(flags)
	case reflect.String:
		v.SetString("a,b")
	case reflect.Int, reflect.Int64:
		v.SetInt(1)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), flags)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0), flags)
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			v.Set(reflect.ValueOf(time.UnixMicro(1e15 + 1)))
			return
		}
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				fill(v.Field(i), flags)
			}
		}
	}
}

// Texts and times are what others make of them.
func FuzzTextsAndTimes(f *testing.F) {
	for _, text := range []string{"page:/home", "a\"b\\c\u2028\u00e9\x7f<&>", "\xff\x00\n", ""} {
		f.Add(text, int64(1e15))
	}
	f.Add("", int64(-1))
	f.Add("", int64(253402300800e6)) // the year 10000
	f.Fuzz(func(t *testing.T, text string, micros int64) {
		quoted, read := appendString(nil, text), ""
		if err := json.Unmarshal(quoted, &read); err != nil || read != string([]rune(text)) || bytes.ContainsAny(quoted, "\n\r") {
			t.Errorf("%q is written as %s (%v)", text, quoted, err)
		}
		at := time.UnixMicro(micros).In(time.FixedZone("", 3600))
		if got := string(appendTime(nil, at)); got != httpserver.FormatTime(at) {
			t.Errorf("%s is written as %s", httpserver.FormatTime(at), got)
		}
	})
}
