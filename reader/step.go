package reader

import (
	"strconv"
	"time"

	"github.com/countmill/countmill"
)

// A Step is the length of a row of a series: some minutes that divide a day, a day, a week, a month
// or a year of a time zone. Days have 23 to 25 hours, and weeks begin on Monday.
type Step struct {
	minutes int // below a day; else 0
	days    int // 1 or 7; else 0
	months  int // 1 or 12; else 0
}

// stepLimit names every step.
const stepLimit = "1m, 2m, 3m, 5m, 10m, 15m, 30m, 1h, 2h, 3h, 4h, 6h, 8h, 12h, 1d, 1w, 1mo, 1y"

var steps = func() map[string]Step {
	all := map[string]Step{"1d": {days: 1}, "1w": {days: 7}, "1mo": {months: 1}, "1y": {months: 12}}
	for _, n := range []int{1, 2, 3, 5, 10, 15, 30} {
		all[strconv.Itoa(n)+"m"] = Step{minutes: n}
	}
	for _, n := range []int{1, 2, 3, 4, 6, 8, 12} {
		all[strconv.Itoa(n)+"h"] = Step{minutes: 60 * n}
	}
	return all
}()

// ParseStep reads 15m, 1h, 1d, 1w, 1mo or 1y. The error is a *countmill.FieldError about step.
func ParseStep(text string) (Step, error) {
	s, ok := steps[text]
	if !ok {
		return Step{}, &countmill.FieldError{Field: "step", Problem: "is not known", Limit: stepLimit}
	}
	return s, nil
}

// fine reports whether rows of the step are no sums of quarter hours.
func (s Step) fine() bool { return s.minutes%quarter != 0 }

const quarter = 15

// unit is a duration that divides every row of the step, in every time zone since 2000.
func (s Step) unit() time.Duration {
	if s.fine() {
		return time.Minute
	}
	return quarter * time.Minute
}

// longestDay bounds the search for the end of a row below a day.
const longestDay = 48 * time.Hour

// floor returns the beginning of the row that has t, in the zone of t.
func (s Step) floor(t time.Time) time.Time {
	y, m, d := t.Date()
	switch {
	case s.days == 7:
		return DayBegins(y, m, d-(int(t.Weekday())+6)%7, t.Location())
	case s.days == 1:
		return DayBegins(y, m, d, t.Location())
	case s.months == 12:
		return DayBegins(y, time.January, 1, t.Location())
	case s.months == 1:
		return DayBegins(y, m, 1, t.Location())
	}
	at := t.Truncate(s.unit())
	for n := longestDay / s.unit(); n > 0 && !s.begins(at); n-- {
		at = at.Add(-s.unit())
	}
	return at
}

// next returns the end of the row that begins at t.
func (s Step) next(t time.Time) time.Time {
	y, m, d := t.Date()
	if s.minutes == 0 {
		return DayBegins(y, m+time.Month(s.months), d+s.days, t.Location())
	}
	at := t.Add(s.unit())
	for n := longestDay / s.unit(); n > 0 && !s.begins(at); n-- {
		at = at.Add(s.unit())
	}
	return at
}

// begins reports whether a row below a day begins at t: the wall clock shows a multiple of the step.
// An hour that the clock shows twice is two rows. A row whose beginning the clock skips does not
// exist, and the row before it is longer.
func (s Step) begins(t time.Time) bool {
	h, m, sec := t.Clock()
	return sec == 0 && (60*h+m)%s.minutes == 0
}

// DayBegins returns the first moment of a day. It is not midnight where the clock skips midnight.
func DayBegins(y int, m time.Month, d int, zone *time.Location) time.Time {
	want := time.Date(y, m, d, 0, 0, 0, 0, time.UTC)
	at := time.Date(y, m, d, 0, 0, 0, 0, zone)
	for dateOf(at).Before(want) {
		at = at.Add(quarter * time.Minute)
	}
	for dateOf(at.Add(-quarter * time.Minute)).Equal(want) {
		at = at.Add(-quarter * time.Minute)
	}
	return at
}

// dateOf is midnight in UTC of the date that t has in its own zone.
func dateOf(t time.Time) time.Time {
	y, m, d := t.Date()
	return time.Date(y, m, d, 0, 0, 0, 0, time.UTC)
}
