package clock

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/countmill/countmill"
)

func TestAClockThatCannotBeRight(t *testing.T) {
	t.Parallel()
	for now, right := range map[time.Time]bool{
		time.Unix(5, 0): false, {}: false, Earliest.Add(-1): false, Earliest: true, Latest: true, Latest.Add(1): false, time.Now(): true,
	} {
		err := Check(now)
		if right != (err == nil) {
			t.Errorf("%s: got %v, want it taken for right: %t", now, err, right)
		}
		if err != nil && (!errors.Is(err, countmill.ErrUnavailable) || !strings.Contains(err.Error(), now.UTC().Format(time.DateTime))) {
			t.Errorf("%s: got %v, want ErrUnavailable that names the time", now, err)
		}
	}
}
