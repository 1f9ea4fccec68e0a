package wire

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/countmill/countmill"
)

func TestDecodeRefusesFollowersWithoutTheirHead(t *testing.T) {
	t.Parallel()
	request := func(key string) []Part {
		parts, err := CutRequest("", key, []countmill.Increment{{Counter: "a" + key, Delta: 1}, {Counter: "b", Delta: 1, ID: "x"}})
		if err != nil {
			t.Fatal(err)
		}
		return parts
	}
	a, b, lone := request("1"), request("2"), CutIdentified(countmill.Increment{Counter: "c", Delta: 1, ID: "x"})
	for name, c := range map[string]struct {
		parts []Part
		good  bool
	}{
		"with its head":         {[]Part{a[0], a[1]}, true},
		"after another part":    {[]Part{a[0], lone, a[1]}, true},
		"two requests":          {[]Part{a[0], a[1], b[0], b[1]}, true},
		"no head":               {[]Part{a[1]}, false},
		"head after it":         {[]Part{a[1], a[0]}, false},
		"head of another":       {[]Part{b[0], a[1]}, false},
		"not the nearest":       {[]Part{a[0], b[0], a[1]}, false},
		"behind an increment":   {[]Part{lone, a[1]}, false},
		"nearest head is right": {[]Part{b[0], a[0], a[1]}, true},
	} {
		_, err := Decode(Append(nil, &Batch{Time: time.Now(), Parts: c.parts}))
		if c.good != (err == nil) || err != nil && !errors.Is(err, countmill.ErrInvalid) {
			t.Errorf("%s: got %v, want it taken: %v", name, err, c.good)
		}
	}
}

func TestDecodeRefusesFollowersThatTheirHeadDoesNotCount(t *testing.T) {
	t.Parallel()
	var incs []countmill.Increment
	for i := range 2*MaxEntries + 1 {
		incs = append(incs, countmill.Increment{Counter: fmt.Sprint("c", i), Delta: 1})
	}
	good, err := CutRequest("", "k", incs)
	if err != nil {
		t.Fatal(err)
	}
	bare, lone, beyond := good[0], good[0], good[2]
	bare.Entries, lone.Number, beyond.Number = nil, 0, 3
	for name, c := range map[string]struct {
		parts []Part
		good  bool
	}{
		"as it is cut":                {good, true},
		"in another order":            {[]Part{good[0], good[2], good[1]}, true},
		"the last part only":          {[]Part{good[0], good[2]}, true},
		"a copy of the head's marker": {[]Part{bare, good[1], good[2]}, true},
		"one part twice":              {[]Part{good[0], good[1], good[1]}, true}, // the second is a copy
		"more parts than there are":   {[]Part{good[0], good[2], beyond}, false},
		"a head that has no others":   {[]Part{lone, good[1]}, false},
	} {
		_, err := Decode(Append(nil, &Batch{Time: time.Now(), Parts: c.parts}))
		if c.good != (err == nil) || err != nil && !errors.Is(err, countmill.ErrInvalid) {
			t.Errorf("%s: got %v, want it taken: %v", name, err, c.good)
		}
	}
}
