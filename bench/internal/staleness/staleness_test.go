package staleness

import (
	"context"
	"errors"
	"io"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countmill/countmill/internal/testing/emulator"
)

// late is a pipeline whose totals show an increment a while after its publish.
type late struct {
	by time.Duration

	mu     sync.Mutex
	totals map[string]int64
}

func (l *late) add(name string, delta int64) {
	time.AfterFunc(l.by, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.totals[name] += delta
	})
}

func (l *late) pipeline(names ...string) pipeline {
	return pipeline{
		names:   names,
		add:     func(name string) error { l.add(name, 1); return nil },
		publish: func(_ context.Context, name string, delta int64) error { l.add(name, delta); return nil },
		totals: func(_ context.Context, names []string) ([]int64, error) {
			l.mu.Lock()
			defer l.mu.Unlock()
			got := make([]int64, len(names))
			for i, name := range names {
				got[i] = l.totals[name]
			}
			return got, nil
		},
	}
}

// A measured time ends when the total shows the probe, to the precision of a pause. Probes begin on
// time even if earlier ones are not seen yet. The load shows as no probe.
func TestMeasure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &late{by: 300 * time.Millisecond, totals: make(map[string]int64)}
		took, err := measure(t.Context(), l.pipeline("a", "b", "c", "d", "e", "f"), schedule{
			rate: 1000, draw: func() uint32 { return 0 }, lasts: time.Second, every: 100 * time.Millisecond, pause: 10 * time.Millisecond, wait: time.Second,
		})
		if err != nil {
			t.Fatal(err)
		}
		if len(took) != 10 {
			t.Errorf("got %d probes, want 10", len(took))
		}
		for _, d := range took {
			if d < l.by || d > l.by+20*time.Millisecond {
				t.Errorf("a probe took %s, want %s", d, l.by)
			}
		}
		time.Sleep(time.Second) // for the last of the load
	})
}

// A lost probe is an error; it is not left out.
func TestLostProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &late{totals: make(map[string]int64)}
		p := l.pipeline("a", "b", "c")
		n := 0
		p.publish = func(_ context.Context, name string, delta int64) error {
			if n++; n != 2 {
				l.add(name, delta)
			}
			return nil
		}
		_, err := measure(t.Context(), p, schedule{rate: 1, draw: func() uint32 { return 0 }, lasts: time.Second, every: 500 * time.Millisecond, pause: time.Millisecond, wait: time.Second})
		if err == nil || !strings.Contains(err.Error(), "1 probes are in no total") {
			t.Errorf("got %v, want an error that says how many are missing", err)
		}
	})
}

func TestQuick(t *testing.T) {
	if testing.Short() {
		t.Skip("builds countmill, and starts the emulators")
	}
	args := []string{"-quick"}
	if _, err := emulator.Jar("platform/cloud-firestore-emulator/*.jar"); errors.Is(err, emulator.ErrMissing) {
		args = append(args, "-only", "embedded")
	}
	var out strings.Builder
	if err := Run(t.Context(), args, &out, io.Discard); err != nil {
		t.Fatal(err)
	}
	if !regexp.MustCompile(`(?m)^\| embedded \| 0 \| 1000 \| \d+ \| [1-9]\d* \|`).MatchString(out.String()) {
		t.Errorf("no probes in %s", out.String())
	}
}
