package publisher

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// The defaults are as the comments of Config promise.
func TestDefaults(t *testing.T) {
	t.Parallel()
	want := Config{
		Topic: "countmill", Linger: 250 * time.Millisecond, MaxEntries: 2_000_000, MaxBytes: 256 << 20,
		MaxInFlight: 8, KnownKeys: 100_000,
	}
	if diff := cmp.Diff(want, Config{}.withDefaults(), cmpopts.IgnoreFields(Config{}, "Logger"), cmpopts.IgnoreUnexported(Config{})); diff != "" {
		t.Errorf("defaults (-want +got):\n%s", diff)
	}
}

func TestNewReportsAllProblems(t *testing.T) {
	t.Parallel()
	_, err := New(newBus(t), Config{MaxEntries: -1, MaxBytes: -1, MaxInFlight: -1, KnownKeys: -1})
	for _, field := range []string{"MaxEntries", "MaxBytes", "MaxInFlight", "KnownKeys"} {
		if err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("got %v, want it to name %s", err, field)
		}
	}
	for budget, want := range map[time.Duration]bool{
		0: true, MinCountWithin: true, MaxCountWithin: true, -1: false, MinCountWithin - 1: false, MaxCountWithin + 1: false,
	} {
		p, err := New(newBus(t), Config{CountWithin: budget})
		if (err == nil) != want || err != nil && !strings.Contains(err.Error(), "CountWithin must be from 100ms to 1m0s") {
			t.Errorf("%s: got %v, want it taken: %v", budget, err, want)
		}
		if p != nil {
			closeNow(t, p)
		}
	}
	if _, err := New(nil, Config{}); err == nil {
		t.Error("no bus was taken for one")
	}
	p := open(t, newBus(t), Config{})
	closeNow(t, p) // nothing was started, nothing to wait for
}
