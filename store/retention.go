package store

import (
	"bytes"
	"fmt"
	"strings"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/internal/units"
)

// A Retention is how long something stays: a series at each of its two resolutions, or the entries of a
// journal. Sums by the hour, the day and longer are made of quarter hours when they are read, in any time
// zone.
type Retention struct {
	// Minutes is how long sums by the minute stay; 0: they are joined to quarter hours soon.
	Minutes time.Duration
	// Quarters is how long sums by the quarter hour stay.
	Quarters time.Duration

	// Entries is how long the entries of a journal stay.
	Entries time.Duration
	// Paged writes a row for each entry, so that pages of one counter read only the rows that they show.
	Paged bool
}

// ParseRetention reads what KindSeries.Form and KindJournal.Form describe. The error is a
// *countmill.FieldError.
func ParseRetention(kind RuleKind, text string) (r Retention, err error) {
	wrong := &countmill.FieldError{Field: "keep", Problem: "is not how long a " + kind.String() + " stays", Limit: kind.Form()}
	seen := make(map[string]bool)
	for part := range strings.SplitSeq(text, ",") {
		resolution, long, hasResolution := strings.Cut(part, ":")
		switch {
		case kind == KindJournal && len(seen) == 1 && part == "paged":
			r.Paged, seen[part] = true, true
			continue
		case !hasResolution:
			resolution, long = "", part
		}
		to := map[string]*time.Duration{"1m": &r.Minutes, "15m": &r.Quarters}[resolution]
		if kind == KindJournal {
			to = map[string]*time.Duration{"": &r.Entries}[resolution]
		}
		d, err := units.ParseDuration(long)
		if err != nil || to == nil || seen[resolution] {
			return Retention{}, wrong
		}
		*to, seen[resolution] = d, true
	}
	return r, r.check(kind)
}

// Form describes the text of a Retention.
func (k RuleKind) Form() string {
	if k == KindJournal {
		return "DURATION or DURATION,paged, such as 400d"
	}
	return "1m:DURATION,15m:DURATION, such as 1m:6h,15m:400d; without the first part minutes are not kept"
}

// String is the retention as ParseRetention reads it.
func (r Retention) String() string {
	switch {
	case r.Paged:
		return inDays(r.Entries) + ",paged"
	case r.Entries != 0:
		return inDays(r.Entries)
	case r.Minutes == 0:
		return "15m:" + inDays(r.Quarters)
	}
	return "1m:" + inDays(r.Minutes) + ",15m:" + inDays(r.Quarters)
}

// MarshalText writes String.
func (r Retention) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText reads it. Only that of a series has colons.
func (r *Retention) UnmarshalText(text []byte) (err error) {
	kind := KindJournal
	if bytes.Contains(text, []byte(":")) {
		kind = KindSeries
	}
	*r, err = ParseRetention(kind, string(text))
	return err
}

func inDays(d time.Duration) string {
	const day = 24 * time.Hour
	if d >= day && d%day == 0 {
		return fmt.Sprintf("%dd", d/day)
	}
	return units.FormatDuration(d)
}

func (r Retention) check(kind RuleKind) error {
	what, long := "quarter hours for ", r.Quarters
	if kind == KindJournal {
		what, long = "entries for ", r.Entries
	}
	switch {
	case r.Minutes < 0 || r.Minutes > MaxKeepMinutes || r.Minutes%time.Minute != 0:
		return &countmill.FieldError{Field: "keep", Problem: "has minutes for " + inDays(r.Minutes), Limit: "0 to 7d, in whole minutes"}
	case long < MinKeep || long > MaxKeep || long%time.Minute != 0:
		return &countmill.FieldError{Field: "keep", Problem: "has " + what + inDays(long), Limit: "1d to 3660d, in whole minutes"}
	case r.Minutes > long:
		return &countmill.FieldError{Field: "keep", Problem: "has minutes for longer than quarter hours", Limit: kind.Form()}
	}
	return nil
}
