package transfer

import (
	"fmt"
	"regexp"
	"strconv"
	"time"

	"github.com/countmill/countmill"
)

const timeLimit = "a time such as 2006-01-02T15:04:05Z, 2006-01-02 15:04:05 or 2006-01-02, or seconds or milliseconds since 1970"

// The forms of a time, besides that of the API. A fraction may follow seconds.
var (
	dates = []string{"2006-01-02", "20060102"} // the day begins then
	walls = []string{"2006-01-02 15:04", "2006-01-02 15:04:05", "2006-01-02T15:04", "2006-01-02T15:04:05"}
	zoned = []string{"2006-01-02 15:04:05Z07:00", "2006-01-02 15:04:05Z07", "2006-01-02 15:04:05 -0700", "2006-01-02 15:04:05 -07:00"}

	// Before 2001 and after 2286 they have other numbers of digits.
	epoch = regexp.MustCompile(`^[0-9]{10}([0-9]{3})?$`)

	dayOrMonth = regexp.MustCompile(`^[0-9]{1,2}[/.-][0-9]{1,2}[/.-][0-9]{2,4}\b`)
)

// parseTime reads a time, which is in zone if it names none itself.
func parseTime(text string, zone *time.Location) (time.Time, error) {
	if epoch.MatchString(text) {
		n, err := strconv.ParseInt(text, 10, 64)
		if len(text) == 10 {
			n *= 1000
		}
		return time.UnixMilli(n), err
	}
	for _, form := range dates {
		if day, err := time.Parse(form, text); err == nil {
			return beginOf(day, zone), nil
		}
	}
	for _, form := range walls {
		if wall, err := time.Parse(form, text); err == nil {
			return momentOf(wall, zone)
		}
	}
	for _, form := range zoned {
		if t, err := time.Parse(form, text); err == nil {
			return t, nil
		}
	}
	if dayOrMonth.MatchString(text) {
		return time.Time{}, badTime(text, "is ambiguous: nothing says which is the day, and which the month")
	}
	// The JSON reader decides whether any other time is valid.
	timed, err := decode([]byte(`{"counter":"x","time":` + strconv.Quote(text) + `}`))
	if err != nil {
		return time.Time{}, badTime(text, "is not a time")
	}
	return timed.Time, nil
}

func badTime(text, problem string) error {
	return &countmill.FieldError{Field: "time", Problem: fmt.Sprintf("%q %s", shorten(text), problem), Limit: timeLimit}
}

// both are the moments at which clocks of the zone may show wall: by the offset of the day before, and by that of the
// day after. They differ on days on which the clocks change.
func both(wall time.Time, zone *time.Location) (before, after time.Time) {
	at := func(days int) time.Time {
		_, offset := wall.AddDate(0, 0, days).In(zone).Zone()
		return wall.Add(-time.Duration(offset) * time.Second).In(zone)
	}
	return at(-1), at(1)
}

// shows reports whether the clocks of t's zone show wall at t.
func shows(t, wall time.Time) bool {
	return t.Format(time.DateTime) == wall.Format(time.DateTime)
}

// momentOf refuses what clocks show twice or never.
func momentOf(wall time.Time, zone *time.Location) (time.Time, error) {
	before, after := both(wall, zone)
	switch first, second := shows(before, wall), shows(after, wall); {
	case first && second && !before.Equal(after):
		return time.Time{}, badTime(wall.Format(time.DateTime), "is ambiguous: clocks of "+zone.String()+" showed it twice")
	case first:
		return before, nil
	case second:
		return after, nil
	}
	return time.Time{}, badTime(wall.Format(time.DateTime), "does not exist in "+zone.String()+": its clocks never showed it")
}

// beginOf is the first moment of a day, whether or not clocks show midnight once.
func beginOf(day time.Time, zone *time.Location) time.Time {
	before, after := both(day, zone)
	if shows(after, day) && !shows(before, day) {
		return after
	}
	return before
}
