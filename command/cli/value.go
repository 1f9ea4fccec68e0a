package cli

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

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
	v.set(Dashed(v.flag), s)
	return nil
}

// set notes an error under name.
func (v notedValue) set(name, s string) {
	if err := v.Value.Set(s); err != nil {
		*v.wrong = append(*v.wrong, fmt.Sprintf("%s: %s, got %q", name, err, s))
	}
}

// A Text is not empty.
type Text struct {
	To *string
	Of []string // the words allowed; none for any text
}

func (v Text) String() string { return *v.To }
func (v Text) Type() string   { return "text" }

func (v Text) Set(s string) error {
	if len(v.Of) > 0 && !slices.Contains(v.Of, s) {
		return fmt.Errorf("must be one of %s", strings.Join(v.Of, ", "))
	}
	if s == "" {
		return errors.New("must not be empty")
	}
	*v.To = s
	return nil
}

// Any is any text, none too: the verb checks it.
func Any(to *string) pflag.Value { return anyValue{to} }

type anyValue struct{ to *string }

func (v anyValue) String() string     { return *v.to }
func (v anyValue) Type() string       { return "text" }
func (v anyValue) Set(s string) error { *v.to = s; return nil }

// Moment is a time, kept as text.
func Moment(to *string) pflag.Value { return momentValue{to} }

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

// Day is a Moment that may also be a date: the beginning of that day in UTC.
func Day(to *string) pflag.Value { return dayValue{momentValue{to}} }

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

// A Count is an integer.
type Count struct {
	To       *int
	Min, Max int
}

func (v Count) String() string { return strconv.Itoa(*v.To) }
func (v Count) Type() string   { return "count" }

func (v Count) Set(s string) error {
	n, err := strconv.Atoi(s)
	if err != nil || n < v.Min || n > v.Max {
		return fmt.Errorf("must be an integer from %d to %d", v.Min, v.Max)
	}
	*v.To = n
	return nil
}

// Whole is a whole number, which may be written as 1e6, and that its verb bounds.
func Whole(to *int64) pflag.Value { return wholeValue{to} }

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

// A Rate is a number a second; 0 is written auto, and a negative one off.
type Rate struct {
	To       *float64
	Min, Max float64
}

func (v Rate) Type() string { return "rate" }

func (v Rate) String() string {
	switch {
	case *v.To < 0:
		return "off"
	case *v.To == 0:
		return "auto"
	}
	return strconv.FormatFloat(*v.To, 'g', -1, 64)
}

func (v Rate) Set(s string) error {
	switch s {
	case "auto":
		*v.To = 0
		return nil
	case "off":
		*v.To = -1
		return nil
	}
	n, err := strconv.ParseFloat(s, 64)
	if err != nil || !(n >= v.Min && n <= v.Max) { // not a number is neither
		return fmt.Errorf("must be a number from %v to %v, or auto, or off", v.Min, v.Max)
	}
	*v.To = n
	return nil
}

// A Duration without a Max is bounded by its verb.
type Duration struct {
	To       *time.Duration
	Min, Max time.Duration
	Auto     bool // 0 is written auto, and 0s is negative
	None     bool // 0 is written none
}

func (v Duration) Type() string { return "duration" }

func (v Duration) String() string {
	if v.Auto && *v.To == 0 {
		return "auto"
	}
	if v.None && *v.To == 0 {
		return "none"
	}
	return units.FormatDuration(max(*v.To, 0))
}

func (v Duration) Set(s string) error {
	if v.Auto && s == "auto" || v.None && s == "none" {
		*v.To = 0
		return nil
	}
	d, err := units.ParseDuration(s)
	if err != nil || v.Max > 0 && (d < v.Min || d > v.Max) {
		return errors.New("must be a duration such as 250ms, 2h or 8d" + v.limits())
	}
	if v.Auto && d == 0 {
		d = -1
	}
	*v.To = d
	return nil
}

func (v Duration) limits() string {
	if v.Max == 0 {
		return ""
	}
	or := orAuto(v.Auto)
	if v.None {
		or = ", or none"
	}
	return fmt.Sprintf(" from %s to %s%s", units.FormatDuration(v.Min), units.FormatDuration(v.Max), or)
}

// A Size is a number of bytes.
type Size struct {
	To       *int
	Min, Max int
	Auto     bool // 0 is written auto, and a negative number 0
}

func (v Size) Type() string { return "size" }

func (v Size) String() string {
	if v.Auto && *v.To == 0 {
		return "auto"
	}
	return units.FormatSize(max(*v.To, 0))
}

func (v Size) Set(s string) error {
	switch {
	case v.Auto && s == "auto":
		*v.To = 0
		return nil
	case v.Auto && s == "0":
		*v.To = -1
		return nil
	}
	n, err := units.ParseSize(s, v.Max)
	if err != nil || n < v.Min {
		return fmt.Errorf("must be a size such as 65536 or 64MiB from %s to %s%s", units.FormatSize(v.Min), units.FormatSize(v.Max), orAuto(v.Auto))
	}
	*v.To = n
	return nil
}

func orAuto(auto bool) string {
	if auto {
		return ", or auto"
	}
	return ""
}

// File names a file or another place, or none.
func File(to *string) pflag.Value { return fileValue{to} }

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

// A List gathers texts: setting it again adds to it.
type List struct {
	To    *[]string
	Split bool               // at commas
	Check func(string) error // nil takes all
	Empty string             // how a list of none is shown
}

func (v List) Type() string { return "list" }

func (v List) String() string {
	if len(*v.To) == 0 {
		return v.Empty
	}
	if v.Split {
		return strings.Join(*v.To, ",")
	}
	return strings.Join(*v.To, " ")
}

func (v List) Set(s string) error {
	texts := []string{s}
	if v.Split {
		texts = strings.Split(s, ",")
	}
	for _, text := range texts {
		if v.Split {
			text = strings.TrimSpace(text)
		}
		if v.Check != nil {
			if err := v.Check(text); err != nil {
				return err
			}
		}
		*v.To = append(*v.To, text)
	}
	return nil
}
