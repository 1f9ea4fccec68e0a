package reader

import (
	"errors"
	"testing"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/store"
)

// A rule covers a window of an index if it has all counters, for as long as the window, in parts of its size.
func TestWindowCovers(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	for name, tt := range map[string]struct {
		window, pattern string
		keep            store.Retention
		want            bool
	}{
		"the counters":               {"today", "page:*", store.Retention{Quarters: 2 * day}, true},
		"more than the counters":     {"today", "pa*", store.Retention{Quarters: 2 * day}, true},
		"one counter":                {"today", "page:", store.Retention{Quarters: 2 * day}, false},
		"some of the counters":       {"today", "page:a*", store.Retention{Quarters: 2 * day}, false},
		"other counters":             {"today", "shop:*", store.Retention{Quarters: 2 * day}, false},
		"less than the longest day":  {"today", "page:*", store.Retention{Quarters: day}, false},
		"the longest month":          {"this-month", "page:*", store.Retention{Quarters: 31*day + time.Hour}, true},
		"less than the longest one":  {"this-month", "page:*", store.Retention{Quarters: 31 * day}, false},
		"the hour in quarters alone": {"1h", "page:*", store.Retention{Quarters: day}, false},
		"the hour in minutes":        {"1h", "page:*", store.Retention{Minutes: time.Hour, Quarters: day}, true},
	} {
		w, err := ParseWindow(tt.window, time.UTC)
		if err != nil {
			t.Fatal(err)
		}
		if got := w.covers(&store.Rule{Pattern: tt.pattern, Keep: tt.keep}, "page:"); got != tt.want {
			t.Errorf("%s: %s=%s covers %s of page: is %t", name, tt.pattern, tt.keep, tt.window, got)
		}
	}
}

func TestParseWindow(t *testing.T) {
	t.Parallel()
	zone := time.FixedZone("two", 7200)
	for text, want := range map[string]string{"": "", "today": "today two", "this-week": "this-week two", "this-month": "this-month two", "1h": "1h UTC"} {
		if w, err := ParseWindow(text, zone); err != nil || w.String() != want {
			t.Errorf("%q: %q, %v; want %q", text, w, err, want)
		}
	}
	_, err := ParseWindow("yesterday", zone)
	if field, ok := errors.AsType[*countmill.FieldError](err); !ok || field.Field != "window" || field.Limit != windowLimit {
		t.Errorf("yesterday: %v, want an error of window with its limit", err)
	}
}
