package command

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/countmill/countmill/internal/app"
	"github.com/countmill/countmill/internal/units"
)

// The values of flags. Set refuses a value out of range and names the range, so that a flag is
// wrong where somebody typed it. They are pflag.Values.

// A notedValue notes an error and goes on, so that one error names everything wrong.
type notedValue struct {
	pflag.Value
	flag  string
	wrong *[]string
}

func (v notedValue) Set(s string) error {
	v.set(dashed(v.flag), s)
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
		return errors.New("must not be empty")
	}
	*v.to = s
	return nil
}

// An anyValue is any text, none too: the command checks it.
type anyValue struct{ to *string }

func (v anyValue) String() string     { return *v.to }
func (v anyValue) Type() string       { return "text" }
func (v anyValue) Set(s string) error { *v.to = s; return nil }

// A momentValue is a time as answers of a server have it, kept as text.
type momentValue struct{ to *string }

func (v momentValue) String() string { return *v.to }
func (v momentValue) Type() string   { return "time" }

func (v momentValue) Set(s string) error {
	if _, err := time.Parse(time.RFC3339Nano, s); err != nil {
		return errors.New("must be like 2006-01-02T15:04:05.000000Z")
	}
	*v.to = s
	return nil
}

// A dayValue is a momentValue that may also be a date: the beginning of that day in UTC, as GET /v1/series has it.
type dayValue struct{ momentValue }

func (v dayValue) Set(s string) error {
	if day, err := time.Parse(time.DateOnly, s); err == nil {
		s = day.Format(time.RFC3339)
	}
	if v.momentValue.Set(s) != nil {
		return errors.New("must be like 2006-01-02T15:04:05.000000Z or 2006-01-02")
	}
	return nil
}

type countValue struct {
	to       *int
	min, max int
}

func (v countValue) String() string { return strconv.Itoa(*v.to) }
func (v countValue) Type() string   { return "count" }

func (v countValue) Set(s string) error {
	n, err := strconv.Atoi(s)
	if err != nil || n < v.min || n > v.max {
		return fmt.Errorf("must be an integer from %d to %d", v.min, v.max)
	}
	*v.to = n
	return nil
}

// A numberValue is a number that its command bounds.
type numberValue float64

func (v *numberValue) String() string { return strconv.FormatFloat(float64(*v), 'g', -1, 64) }
func (v *numberValue) Type() string   { return "number" }

func (v *numberValue) Set(s string) error {
	n, err := strconv.ParseFloat(s, 64)
	if err != nil {
		return errors.New("must be a number such as 1e6")
	}
	*v = numberValue(n)
	return nil
}

// A wholeValue is a whole number, which may be written as 1e6, and that its command bounds.
type wholeValue struct{ to *int64 }

func (v wholeValue) String() string { return strconv.FormatInt(*v.to, 10) }
func (v wholeValue) Type() string   { return "whole number" }

func (v wholeValue) Set(s string) error {
	n, err := strconv.ParseFloat(s, 64)
	if err != nil || n != math.Trunc(n) || math.Abs(n) > 1<<53 {
		return errors.New("must be a whole number such as 1000 or 1e6")
	}
	*v.to = int64(n)
	return nil
}

// A rateValue is a number a second; 0 is written auto, and a negative one off.
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

// A durationValue without a max is bounded by its command.
type durationValue struct {
	to       *time.Duration
	min, max time.Duration
	auto     bool // 0 is written auto, and 0s is negative
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
	return units.FormatDuration(max(*v.to, 0))
}

func (v durationValue) Set(s string) error {
	if v.auto && s == "auto" || v.none && s == "none" {
		*v.to = 0
		return nil
	}
	d, err := units.ParseDuration(s)
	if err != nil || v.max > 0 && (d < v.min || d > v.max) {
		return errors.New("must be a duration such as 250ms, 2h or 8d" + v.limits())
	}
	if v.auto && d == 0 {
		d = -1
	}
	*v.to = d
	return nil
}

func (v durationValue) limits() string {
	if v.max == 0 {
		return ""
	}
	or := orAuto(v.auto)
	if v.none {
		or = ", or none"
	}
	return fmt.Sprintf(" from %s to %s%s", units.FormatDuration(v.min), units.FormatDuration(v.max), or)
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
	return units.FormatSize(max(*v.to, 0))
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
	n, err := units.ParseSize(s, v.max)
	if err != nil || n < v.min {
		return fmt.Errorf("must be a size such as 65536 or 64MiB from %s to %s%s", units.FormatSize(v.min), units.FormatSize(v.max), orAuto(v.auto))
	}
	*v.to = n
	return nil
}

func orAuto(auto bool) string {
	if auto {
		return ", or auto"
	}
	return ""
}

// A fileValue names a file or another place, or none.
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
		return errors.New("must not be empty")
	}
	if s == "none" {
		s = ""
	}
	*v.to = s
	return nil
}

// dirValue writes a directory into the URL of the store.
type dirValue struct{ store *string }

func (v dirValue) Type() string   { return "dir" }
func (v dirValue) String() string { return "countmill-data" }

func (v dirValue) Set(s string) error {
	if s == "" {
		return errors.New("must not be empty")
	}
	*v.store = app.PebbleURL(s)
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
	return errors.New("must be true or false")
}
