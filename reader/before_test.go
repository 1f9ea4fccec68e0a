package reader

import (
	"testing"
	"time"
)

// The row before is a fixed number of minutes earlier, in any time zone.
func TestBeforeByMinutes(t *testing.T) {
	t.Parallel()
	at := time.Date(2027, 3, 28, 3, 15, 0, 0, time.UTC)
	if got, want := (Step{minutes: 45}).before(at), at.Add(-45*time.Minute); !got.Equal(want) {
		t.Errorf("got %s, want %s", got, want)
	}
}
