package client

import (
	"encoding/json"
	"slices"
	"testing"
)

// A total that does not fit 64 bits comes apart from the others, and replaces the known total of its counter.
func TestOverflowInUpdates(t *testing.T) {
	t.Parallel()
	w := &watch{c: new(Client), known: make(map[string]Total)}
	read := func(data string) Update {
		t.Helper()
		u := w.read(Event{Name: "totals", Data: []byte(data)})
		if u.err != nil {
			t.Fatal(u.err)
		}
		return u.Update
	}
	first := read(`{"totals":[{"counter":"a","total":7},{"counter":"o","total":8}],"lag":0}`)
	if _, news := w.news(first, true); !news || len(w.known) != 2 {
		t.Errorf("the first update: %+v", w.known)
	}
	over := read(`{"totals":[{"counter":"o","total":null,"error":"urn:countmill:problem:overflow"}],"lag":0}`)
	got, news := w.news(over, false)
	if want := []string{"o"}; !news || len(got.Totals) != 0 || !slices.Equal(got.Overflowed, want) || len(w.known) != 1 {
		t.Errorf("got %+v, news %t, and %v is known; want o overflowed, and a", got, news, w.known)
	}
	both := first.and(over)
	if len(both.Totals) != 1 || both.Totals[0].Counter != "a" || !slices.Equal(both.Overflowed, []string{"o"}) || len(both.Removed) != 0 {
		t.Errorf("merged: %+v, want a, and o overflowed", both)
	}
	if back := both.and(first); len(back.Totals) != 2 || len(back.Overflowed) != 0 {
		t.Errorf("a total that fits again: %+v", back)
	}
	if totals, overflowed := split([]Total{{Counter: "a"}, {Counter: "o", Error: "x"}}); len(totals) != 1 || !slices.Equal(overflowed, []string{"o"}) {
		t.Errorf("split: %v and %v", totals, overflowed)
	}
}

// The amount of a reset may not fit 64 bits.
func TestRemovedBeyondInt64(t *testing.T) {
	t.Parallel()
	var r Removed
	err := json.Unmarshal([]byte(`{"counter":"a","removed":null,"removed_exact":"18446744073709551616","overflow":true,"exists":true}`), &r)
	if want := (Removed{Counter: "a", Overflow: true, Exact: "18446744073709551616", Exists: true}); err != nil || r != want {
		t.Errorf("got %+v, %v, want %+v", r, err, want)
	}
}
