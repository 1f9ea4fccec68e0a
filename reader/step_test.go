package reader_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/countmill/countmill/reader"
	"github.com/countmill/countmill/store"
)

const day = 24 * time.Hour

func zone(t *testing.T, name string) *time.Location {
	t.Helper()
	z, err := time.LoadLocation(name)
	if err != nil {
		t.Fatal(err)
	}
	return z
}

func step(t *testing.T, text string) reader.Step {
	t.Helper()
	s, err := reader.ParseStep(text)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Rows of a zone begin and end by its wall clock.
func TestRowsFollowTheZone(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		zone, step, from, to string
		want                 []string // the beginnings, and the end of the last row
	}{
		{"UTC", "1d", "2026-11-23T10:00:00Z", "2026-11-24T00:00:00Z", []string{"2026-11-23T00:00:00Z", "2026-11-24T00:00:00Z"}},
		{"Asia/Kathmandu", "1d", "2026-11-22T18:15:00Z", "2026-11-22T18:16:00Z", []string{"2026-11-23T00:00:00+05:45", "2026-11-24T00:00:00+05:45"}},
		{"Asia/Kathmandu", "1d", "2026-11-22T18:14:59Z", "2026-11-22T18:15:00Z", []string{"2026-11-22T00:00:00+05:45", "2026-11-23T00:00:00+05:45"}},
		{"Asia/Kathmandu", "1h", "2026-11-22T18:20:00Z", "2026-11-22T19:16:00Z", []string{"2026-11-23T00:00:00+05:45", "2026-11-23T01:00:00+05:45", "2026-11-23T02:00:00+05:45"}},
		{"America/St_Johns", "1d", "2026-07-01T02:29:00Z", "2026-07-01T02:31:00Z", []string{"2026-06-30T00:00:00-02:30", "2026-07-01T00:00:00-02:30", "2026-07-02T00:00:00-02:30"}},
		// A day of 23 and one of 25 hours.
		{"Europe/Berlin", "1d", "2026-03-28T23:00:00Z", "2026-03-29T22:00:00Z", []string{"2026-03-29T00:00:00+01:00", "2026-03-30T00:00:00+02:00"}},
		{"Europe/Berlin", "1d", "2026-10-24T22:00:00Z", "2026-10-25T23:00:00Z", []string{"2026-10-25T00:00:00+02:00", "2026-10-26T00:00:00+01:00"}},
		{"Europe/Berlin", "1h", "2026-03-29T00:00:00Z", "2026-03-29T02:00:00Z", []string{"2026-03-29T01:00:00+01:00", "2026-03-29T03:00:00+02:00", "2026-03-29T04:00:00+02:00"}},
		{"Europe/Berlin", "1h", "2026-10-25T00:00:00Z", "2026-10-25T02:00:00Z", []string{"2026-10-25T02:00:00+02:00", "2026-10-25T02:00:00+01:00", "2026-10-25T03:00:00+01:00"}},
		{"Australia/Lord_Howe", "1h", "2026-04-04T14:00:00Z", "2026-04-04T15:30:00Z", []string{"2026-04-05T01:00:00+11:00", "2026-04-05T02:00:00+10:30"}},
		// Clocks of Havana and Beirut skip midnight. Those of Amman showed it twice.
		{"America/Havana", "1d", "2026-03-08T03:00:00Z", "2026-03-08T06:00:00Z", []string{"2026-03-07T00:00:00-05:00", "2026-03-08T01:00:00-04:00", "2026-03-09T00:00:00-04:00"}},
		{"Asia/Beirut", "1d", "2026-03-28T23:00:00Z", "2026-03-29T21:00:00Z", []string{"2026-03-29T01:00:00+03:00", "2026-03-30T00:00:00+03:00"}},
		{"Asia/Amman", "1d", "2020-10-29T21:30:00Z", "2020-10-30T21:00:00Z", []string{"2020-10-30T00:00:00+03:00", "2020-10-31T00:00:00+02:00"}},
		// Samoa had no 30th of December.
		{"Pacific/Apia", "1d", "2011-12-30T09:00:00Z", "2011-12-30T11:00:00Z", []string{"2011-12-29T00:00:00-10:00", "2011-12-31T00:00:00+14:00", "2012-01-01T00:00:00+14:00"}},
		{"UTC", "1w", "2026-11-22T23:59:00Z", "2026-11-23T00:00:01Z", []string{"2026-11-16T00:00:00Z", "2026-11-23T00:00:00Z", "2026-11-30T00:00:00Z"}},
		{"Asia/Kolkata", "1mo", "2026-01-31T18:29:00Z", "2026-01-31T18:31:00Z", []string{"2026-01-01T00:00:00+05:30", "2026-02-01T00:00:00+05:30", "2026-03-01T00:00:00+05:30"}},
		{"UTC", "1y", "2026-12-31T00:00:00Z", "2027-01-01T00:00:00Z", []string{"2026-01-01T00:00:00Z", "2027-01-01T00:00:00Z"}},
		{"UTC", "10m", "2026-11-23T10:09:59Z", "2026-11-23T10:10:01Z", []string{"2026-11-23T10:00:00Z", "2026-11-23T10:10:00Z", "2026-11-23T10:20:00Z"}},
		{"UTC", "12h", "2026-11-23T10:00:00Z", "2026-11-23T13:00:00Z", []string{"2026-11-23T00:00:00Z", "2026-11-23T12:00:00Z", "2026-11-24T00:00:00Z"}},
	} {
		s := newSeries(t, store.Retention{Minutes: 7 * day, Quarters: 3660 * day})
		from, to := parse(t, tt.from), parse(t, tt.to)
		s.set(to)
		rows := s.rows(t, reader.SeriesQuery{Counters: []string{"a"}, Step: step(t, tt.step), From: from.In(zone(t, tt.zone)), To: to})
		var got []string
		for _, r := range rows {
			got = append(got, r.Time.Format(time.RFC3339))
		}
		got = append(got, rows[len(rows)-1].End.Format(time.RFC3339))
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s in %s, %s to %s (-want +got):\n%s", tt.step, tt.zone, tt.from, tt.to, diff)
		}
	}
}

func parse(t *testing.T, text string) time.Time {
	t.Helper()
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		t.Fatal(err)
	}
	return at
}
