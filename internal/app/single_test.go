package app

import (
	"strings"
	"testing"
)

// A reader shows the aggregators' lag, and how many are alive. With none the lag is absent.
func TestAReaderShowsTheLag(t *testing.T) {
	t.Parallel()
	b := openApart(t)
	reader, aggregator := b.run(t, Config{Roles: Reader}), b.run(t, Config{Roles: Aggregator})
	defer reader.stop(t)
	shows := func(alive string, lag bool) func() bool {
		return func() bool {
			_, text := reader.call(t, "GET", "/metrics", "")
			return strings.Contains(text, "\ncountmill_aggregators_alive "+alive+"\n") && strings.Contains(text, "\ncountmill_lag_seconds 0\n") == lag
		}
	}
	reader.poll(t, "shown as alive", shows("1", true))
	aggregator.stop(t)
	reader.poll(t, "shown as gone", shows("0", false))
}
