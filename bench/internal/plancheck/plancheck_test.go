package plancheck

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countmill/countmill/bench/internal/server"
)

func TestOff(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		planned, measured float64
		off               bool
	}{
		{10, 10, false}, {10, 11.9, false}, {10, 8.1, false}, {10, 12.1, true}, {10, 7.9, true}, {10, 0, true}, {0, 0, true}, {0, 1, true}, {10, math.NaN(), true},
	} {
		if got := (figure{"x", c.planned, c.measured}).off(0.2); got != c.off {
			t.Errorf("planned %g, measured %g: off is %t, want %t", c.planned, c.measured, got, c.off)
		}
	}
}

// The figures are the increase per second, and the time of a commit.
func TestSince(t *testing.T) {
	t.Parallel()
	before := counts{increments: 100, messages: 10, parts: 20, commits: 4, written: 30, retries: 1, took: 2, read: 7, totals: 9}
	after := counts{increments: 300, messages: 20, parts: 60, commits: 8, written: 90, retries: 2, took: 3, read: 27, totals: 109}
	want := counts{increments: 100, messages: 5, parts: 20, commits: 2, written: 30, retries: 1, took: 0.5, read: 10, totals: 50}
	if got := after.since(before, 2); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestTimersAreLate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second+time.Millisecond)
		defer cancel()
		if late := timersAreLate(ctx); late > time.Millisecond {
			t.Errorf("%s late where time is virtual", late)
		}
	})
}

func TestQuick(t *testing.T) {
	if testing.Short() {
		t.Skip("builds countmill, and starts the emulators")
	}
	if _, err := server.Jar("platform/cloud-firestore-emulator/*.jar"); errors.Is(err, server.ErrMissing) {
		t.Skip(err)
	}
	file := filepath.Join(t.TempDir(), "plan.json")
	if err := Run(t.Context(), []string{"-quick", "-json", file}, t.Output(), io.Discard); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	var got struct{ Results []result }
	if err == nil {
		err = json.Unmarshal(text, &got)
	}
	if err != nil || len(got.Results) != 3 {
		t.Fatalf("got %s, error %v: want three loads", text, err)
	}
	for _, r := range got.Results {
		for _, f := range r.Figures {
			if f.Measured <= 0 || f.Planned <= 0 {
				t.Errorf("%s, %s: %g measured and %g planned", r.Load, f.What, f.Measured, f.Planned)
			}
		}
	}
}
