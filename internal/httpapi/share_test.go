package httpapi

import (
	"errors"
	"strings"
	"testing"

	"github.com/countmill/countmill"
)

// A caller can use a part of all answers, and the others have the rest. Callers without tokens are one, and have all.
func TestShare(t *testing.T) {
	t.Parallel()
	s := share{all: 4, own: 3}
	var leaves []func()
	enter := func(caller string, n int, full string) {
		t.Helper()
		for range n {
			leave, err := s.enter(caller, "series are being read")
			if err != nil {
				t.Fatalf("%q: %v", caller, err)
			}
			leaves = append(leaves, leave)
		}
		if _, err := s.enter(caller, "series are being read"); !errors.Is(err, countmill.ErrOverloaded) || !strings.Contains(err.Error(), full) {
			t.Errorf("%q after %d: got %v, want %q", caller, n, err, full)
		}
	}
	for range 2 {
		enter("a", 3, "3 series are being read for this token")
		enter("b", 1, "4 series are being read")
		for _, leave := range leaves {
			leave()
		}
		leaves = nil
	}
	enter("", 4, "4 series are being read")
	if len(s.of) != 1 {
		t.Errorf("callers that left are kept: %v", s.of)
	}
}
