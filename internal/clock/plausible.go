package clock

import (
	"fmt"
	"time"

	"github.com/countmill/countmill"
)

// Earliest and Latest bound the times that a correct clock can show. This code was written after
// Earliest, and a time after Latest does not fit int64 nanoseconds.
var (
	Earliest = time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC)
	Latest   = time.Date(2262, time.January, 1, 0, 0, 0, 0, time.UTC)
)

// Check returns an error that matches countmill.ErrUnavailable if a clock that shows now
// must be wrong. An increment with such a time is beyond every window: its caller would get the
// answer that it is durable, and it would become a dead letter.
func Check(now time.Time) error {
	if now.Before(Earliest) || now.After(Latest) {
		return fmt.Errorf("%w: the clock of this machine shows %s; the right time is after %s and before %s: set the clock",
			countmill.ErrUnavailable, now.UTC().Format(time.DateTime), Earliest.Format(time.DateOnly), Latest.Format(time.DateOnly))
	}
	return nil
}
