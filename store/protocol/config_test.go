package protocol

import "testing"

// With a monotonic reading a suspension of days would be no time: see Store.transact.
func TestTheDefaultClockIsTheWallClock(t *testing.T) {
	t.Parallel()
	if now := (Config{}).withDefaults().Clock(); now != now.Round(0) {
		t.Errorf("the clock says %s, want it without a monotonic reading", now)
	}
}
