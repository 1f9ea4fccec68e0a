// Package units reads and writes durations and sizes as flags and messages have them.
package units

import (
	"errors"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// day is 24 hours: a duration knows no time zone.
const day = 24 * time.Hour

var inDays = regexp.MustCompile(`^([+-]?)([0-9]+(?:\.[0-9]+)?)d(.*)$`)

// ParseDuration is time.ParseDuration, which also takes days in front: 8d, 1.5d, 1d12h.
func ParseDuration(text string) (time.Duration, error) {
	m := inDays.FindStringSubmatch(text)
	if m == nil {
		return time.ParseDuration(text)
	}
	n, err := strconv.ParseFloat(m[2], 64)
	d := time.Duration(0)
	if err == nil && m[3] != "" {
		d, err = time.ParseDuration(m[3])
	}
	switch {
	case err != nil || strings.HasPrefix(m[3], "+") || strings.HasPrefix(m[3], "-"):
		return 0, errors.New("no duration")
	case n*float64(day)+float64(d) >= math.MaxInt64:
		return 0, errors.New("too long a duration")
	}
	d += time.Duration(n * float64(day))
	if m[1] == "-" {
		d = -d
	}
	return d, nil
}

// FormatDuration writes 192h where Go writes 192h0m0s.
func FormatDuration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

var sizes = []struct {
	suffix string
	bytes  int
}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}}

// ParseSize reads 65536 and 64MiB, up to most bytes.
func ParseSize(text string, most int) (int, error) {
	digits, unit := text, 1
	for _, size := range sizes {
		if rest, ok := strings.CutSuffix(text, size.suffix); ok {
			digits, unit = rest, size.bytes
		}
	}
	n, err := strconv.ParseUint(digits, 10, 32)
	if err != nil || int(n) > most/unit {
		return 0, errors.New("no size, or too large a size")
	}
	return int(n) * unit, nil
}

// FormatSize writes a number of bytes in its largest unit: 64MiB.
func FormatSize(n int) string {
	for _, size := range sizes {
		if n >= size.bytes && n%size.bytes == 0 {
			return strconv.Itoa(n/size.bytes) + size.suffix
		}
	}
	return strconv.Itoa(n)
}
