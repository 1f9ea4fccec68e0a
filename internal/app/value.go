package app

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/countmill/countmill/internal/api"
)

// The values of flags. Set refuses what is out of range and names the range: a flag is
// then wrong where it was typed and not somewhere later. They are pflag.Values.

// A notedValue notes what is wrong and goes on, so that everything wrong is named at
// once.
type notedValue struct {
	pflag.Value
	flag  string
	wrong *[]string
}

func (v notedValue) Set(s string) error {
	v.set("--"+v.flag, s)
	return nil
}

// set notes an error under name.
func (v notedValue) set(name, s string) {
	if err := v.Value.Set(s); err != nil {
		*v.wrong = append(*v.wrong, fmt.Sprintf("%s: %s, got %q", name, err, s))
	}
}

type textValue struct {
	to *string
	of []string // the words allowed; none for any text
}

func (v textValue) String() string { return *v.to }
func (v textValue) Type() string   { return "text" }

func (v textValue) Set(s string) error {
	if len(v.of) > 0 && !slices.Contains(v.of, s) {
		return fmt.Errorf("must be one of %s", strings.Join(v.of, ", "))
	}
	if s == "" {
		return fmt.Errorf("must not be empty")
	}
	*v.to = s
	return nil
}

type countValue struct {
	to       *int
	min, max int
	auto     bool // 0 is written auto
}

func (v countValue) Type() string { return "count" }

func (v countValue) String() string {
	if v.auto && *v.to == 0 {
		return "auto"
	}
	return strconv.Itoa(*v.to)
}

func (v countValue) Set(s string) error {
	if v.auto && s == "auto" {
		*v.to = 0
		return nil
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < v.min || n > v.max {
		return fmt.Errorf("must be an integer from %d to %d%s", v.min, v.max, orAuto(v.auto))
	}
	*v.to = n
	return nil
}

// A rateValue is a number a second; 0 is written auto, and what is negative off.
type rateValue struct{ to *float64 }

const minRate, maxRate = 0.1, 1000.0

func (v rateValue) Type() string { return "rate" }

func (v rateValue) String() string {
	switch {
	case *v.to < 0:
		return "off"
	case *v.to == 0:
		return "auto"
	}
	return strconv.FormatFloat(*v.to, 'g', -1, 64)
}

func (v rateValue) Set(s string) error {
	switch s {
	case "auto":
		*v.to = 0
		return nil
	case "off":
		*v.to = -1
		return nil
	}
	n, err := strconv.ParseFloat(s, 64)
	if err != nil || !(n >= minRate && n <= maxRate) { // not a number is neither
		return fmt.Errorf("must be a number from %v to %v, or auto, or off", minRate, maxRate)
	}
	*v.to = n
	return nil
}

type durationValue struct {
	to       *time.Duration
	min, max time.Duration
	auto     bool // 0 is written auto, and what is written 0 is negative
	none     bool // 0 is written none
}

func (v durationValue) Type() string { return "duration" }

func (v durationValue) String() string {
	if v.auto && *v.to == 0 {
		return "auto"
	}
	if v.none && *v.to == 0 {
		return "none"
	}
	return formatDuration(max(*v.to, 0))
}

func (v durationValue) Set(s string) error {
	if v.auto && s == "auto" {
		*v.to = 0
		return nil
	}
	if v.none && s == "none" {
		*v.to = 0
		return nil
	}
	d, err := time.ParseDuration(s)
	if err != nil || d < v.min || d > v.max {
		or := orAuto(v.auto)
		if v.none {
			or = ", or none"
		}
		return fmt.Errorf("must be a duration such as 250ms or 2h from %s to %s%s", formatDuration(v.min), formatDuration(v.max), or)
	}
	if v.auto && d == 0 {
		d = -1
	}
	*v.to = d
	return nil
}

type sizeValue struct {
	to       *int
	min, max int
	auto     bool // 0 is written auto, and a negative number 0
}

func (v sizeValue) Type() string { return "size" }

func (v sizeValue) String() string {
	if v.auto && *v.to == 0 {
		return "auto"
	}
	return formatSize(max(*v.to, 0))
}

func (v sizeValue) Set(s string) error {
	switch {
	case v.auto && s == "auto":
		*v.to = 0
		return nil
	case v.auto && s == "0":
		*v.to = -1
		return nil
	}
	digits, unit := s, 1
	for suffix, size := range units {
		if rest, ok := strings.CutSuffix(s, suffix); ok {
			digits, unit = rest, size
		}
	}
	n, err := strconv.ParseUint(digits, 10, 32)
	if err != nil || int(n) > v.max/unit || int(n)*unit < v.min {
		return fmt.Errorf("must be a size such as 65536 or 64MiB from %s to %s%s", formatSize(v.min), formatSize(v.max), orAuto(v.auto))
	}
	*v.to = int(n) * unit
	return nil
}

var units = map[string]int{"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}

func formatSize(n int) string {
	for _, suffix := range []string{"GiB", "MiB", "KiB"} {
		if unit := units[suffix]; n >= unit && n%unit == 0 {
			return strconv.Itoa(n/unit) + suffix
		}
	}
	return strconv.Itoa(n)
}

// formatDuration writes 192h for what Go writes 192h0m0s.
func formatDuration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

func orAuto(auto bool) string {
	if auto {
		return ", or auto"
	}
	return ""
}

type autoTextValue struct{ to *string }

func (v autoTextValue) Type() string { return "text" }

func (v autoTextValue) String() string {
	if *v.to == "" {
		return "auto"
	}
	return *v.to
}

func (v autoTextValue) Set(s string) error {
	if s == "auto" {
		s = ""
	}
	*v.to = s
	return nil
}

// A fileValue names a file, or none.
type fileValue struct{ to *string }

func (v fileValue) Type() string { return "file" }

func (v fileValue) String() string {
	if *v.to == "" {
		return "none"
	}
	return *v.to
}

func (v fileValue) Set(s string) error {
	if s == "" {
		return fmt.Errorf("must not be empty")
	}
	if s == "none" {
		s = ""
	}
	*v.to = s
	return nil
}

// An originsValue gathers origins of web pages; setting it again adds to it.
type originsValue struct{ to *[]string }

func (v originsValue) Type() string { return "origin" }

func (v originsValue) String() string {
	if len(*v.to) == 0 {
		return "none"
	}
	return strings.Join(*v.to, ",")
}

func (v originsValue) Set(s string) error {
	for origin := range strings.SplitSeq(s, ",") {
		if err := api.CheckOrigin(strings.TrimSpace(origin)); err != nil {
			return err
		}
		*v.to = append(*v.to, strings.TrimSpace(origin))
	}
	return nil
}

// dirValue writes a directory into the URL of the store.
type dirValue struct{ store *string }

func (v dirValue) Type() string   { return "dir" }
func (v dirValue) String() string { return "countmill-data" }

func (v dirValue) Set(s string) error {
	if s == "" {
		return fmt.Errorf("must not be empty")
	}
	if strings.HasPrefix(s, "//") { // which a URL takes for the name of a host
		s = "//" + s
	}
	*v.store = "pebble:" + escapeDir(s)
	return nil
}

// A boolValue may be written without a value: --create.
type boolValue struct{ to *bool }

func (v boolValue) String() string { return strconv.FormatBool(*v.to) }
func (v boolValue) Type() string   { return "bool" }

func (v boolValue) Set(s string) error {
	switch s {
	case "true", "false":
		*v.to = s == "true"
		return nil
	}
	return fmt.Errorf("must be true or false")
}
