package units

import (
	"testing"
	"time"
)

func TestParseDuration(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Duration{
		"8d": 192 * time.Hour, "1.5d": 36 * time.Hour, "1d12h": 36 * time.Hour, "-2d": -48 * time.Hour, "-1d1h": -25 * time.Hour,
		"0d": 0, "250ms": 250 * time.Millisecond, "2h": 2 * time.Hour, "106751d": 106751 * 24 * time.Hour,
	} {
		if got, err := ParseDuration(text); got != want || err != nil {
			t.Errorf("%q: got %s, %v, want %s", text, got, err, want)
		}
	}
	for _, text := range []string{"", "d", "8", "8dd", "8d8d", "8d-1h", "8d+1h", "1e3d", "infd", "nand", "--8d", "8 d", "d8", "8d1", "106752d", "9999999d", "h8d"} {
		if got, err := ParseDuration(text); err == nil {
			t.Errorf("%q: got %s, want an error", text, got)
		}
	}
}

func TestFormat(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{192 * time.Hour: "192h", 90 * time.Minute: "1h30m", 10 * time.Second: "10s", 0: "0s"} {
		if got := FormatDuration(d); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	for n, want := range map[int]string{64 << 20: "64MiB", 1 << 30: "1GiB", 1<<30 + 1: "1073741825", 3 << 10: "3KiB", 0: "0"} {
		if got := FormatSize(n); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		if back, err := ParseSize(want, n); back != n || err != nil {
			t.Errorf("%s: got %d, %v, want %d", want, back, err, n)
		}
	}
	for _, text := range []string{"", "MiB", "1GB", "-1", "4294967295GiB", "2KiB"} {
		if got, err := ParseSize(text, 2047); err == nil {
			t.Errorf("%q: got %d, want an error", text, got)
		}
	}
}
