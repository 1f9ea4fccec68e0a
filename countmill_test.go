package countmill

import (
	"errors"
	"strings"
	"testing"
	"time"
)

func TestCheckCounter(t *testing.T) {
	t.Parallel()
	for _, name := range []string{
		"a", "a//b", "https://x.org/p", "a/../b", "page:/home", "_", "___", "__x", "x__", "é", "日本", "a b",
		strings.Repeat("x", MaxCounterName), "..", "%2F", "\u2028",
	} {
		if err := CheckCounter(name); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
	for name, want := range map[string]string{
		"":                                      "is empty",
		strings.Repeat("x", MaxCounterName+1):   "too long",
		strings.Repeat("é", MaxCounterName/2+1): "too long",
		"a\xff":                                 "not valid UTF-8",
		"a\x00b":                                "control character",
		"a\nb":                                  "control character",
		"a\x7fb":                                "control character",
		"a\u0085b":                              "control character",
		" a":                                    "space",
		"a ":                                    "space",
		"é ":                                    "space",
		"__x__":                                 "reserved",
		"____":                                  "reserved",
		"__é__":                                 "reserved",
	} {
		var field *FieldError
		err := CheckCounter(name)
		if !errors.Is(err, ErrInvalid) || !errors.As(err, &field) || field.Field != "counter" || field.Limit == "" || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want a counter error with %q and a limit", name, err, want)
		}
	}
}

func TestCheckIncrement(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	good := Increment{Counter: "a", Delta: 1}
	with := func(f func(*Increment)) Increment { inc := good; f(&inc); return inc }
	for _, c := range []struct {
		inc   Increment
		field string // "" for a good one
	}{
		{good, ""},
		{with(func(i *Increment) { i.Delta = MaxDelta }), ""},
		{with(func(i *Increment) { i.Delta = -MaxDelta }), ""},
		{with(func(i *Increment) { i.Delta = 0 }), "delta"},
		{with(func(i *Increment) { i.Delta = MaxDelta + 1 }), "delta"},
		{with(func(i *Increment) { i.Delta = -MaxDelta - 1 }), "delta"},
		{with(func(i *Increment) { i.Counter = "" }), "counter"},
		{with(func(i *Increment) { i.ID = strings.Repeat("x", MaxID) }), ""},
		{with(func(i *Increment) { i.ID = strings.Repeat("x", MaxID+1) }), "id"},
		{with(func(i *Increment) { i.ID = "a\x00" }), "id"},
		{with(func(i *Increment) { i.ID = "\xff" }), "id"},
		{with(func(i *Increment) { i.Time = now.Add(-DefaultDedupWindow) }), ""},
		{with(func(i *Increment) { i.Time = now.Add(-DefaultDedupWindow - 1) }), "time"},
		{with(func(i *Increment) { i.Time = now.Add(MaxAhead) }), ""},
		{with(func(i *Increment) { i.Time = now.Add(MaxAhead + 1) }), "time"},
	} {
		err := c.inc.Check(now, DefaultDedupWindow)
		var field *FieldError
		switch {
		case c.field == "" && err != nil:
			t.Errorf("%+v: %v", c.inc, err)
		case c.field != "" && (!errors.As(err, &field) || field.Field != c.field || field.Limit == ""):
			t.Errorf("%+v: got %v, want an error of field %s with its limit", c.inc, err, c.field)
		}
	}
	if err := CheckID("Idempotency-Key", ""); err == nil || !strings.Contains(err.Error(), "Idempotency-Key is empty") {
		t.Errorf("empty key: got %v", err)
	}
}

func TestFieldErrorNamesThePlace(t *testing.T) {
	t.Parallel()
	index, line := 0, 7
	for want, err := range map[string]*FieldError{
		"increment 0: delta is 0 (limit: not 0)": {Field: "delta", Problem: "is 0", Limit: "not 0", Index: &index},
		"line 7: is not an object":               {Problem: "is not an object", Line: &line},
	} {
		if err.Error() != want {
			t.Errorf("got %q, want %q", err.Error(), want)
		}
	}
}
