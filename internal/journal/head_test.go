package journal

import (
	"bytes"
	"crypto/rand"
	"log/slog"
	"testing"
	"time"

	"github.com/countmill/countmill/store"
)

func headOf(t *testing.T, hour time.Time, records ...*Record) Head {
	t.Helper()
	h := NewHeading(hour)
	for i, r := range records {
		h.Add(store.NewJournalKey(hour.Add(time.Duration(i)*time.Minute), 0), hour.Add(time.Duration(2-i)*time.Hour), r)
	}
	return h.Head()
}

// A head differs if a record is missing, moved, or sealed again, and not if an entry is erased.
func TestHeads(t *testing.T) {
	t.Parallel()
	hour := time.Date(2026, 11, 25, 10, 0, 0, 0, time.UTC)
	sealed := func() *Record {
		r := record()
		if err := sealer(t, 1).Seal(r, key, rand.Reader); err != nil {
			t.Fatal(err)
		}
		return r
	}
	a, b := sealed(), sealed()
	want := headOf(t, hour, a, b)
	if want.Records != 2 || !want.Until.Equal(hour.Add(time.Hour)) {
		t.Errorf("a head of two records: %+v", want)
	}
	for name, got := range map[string]Head{"one missing": headOf(t, hour, a), "moved": headOf(t, hour, b, a), "sealed again": headOf(t, hour, a, sealed())} {
		if got.Digest == want.Digest {
			t.Errorf("%s: the same digest", name)
		}
	}
	b.Erase(&b.Parts[0].Entries[0])
	if got := headOf(t, hour, a, b); got != want {
		t.Errorf("after an erasure: got %+v, want %+v", got, want)
	}
}

// A head is read back from both forms of logs.
func TestHeadsInLogs(t *testing.T) {
	t.Parallel()
	want := headOf(t, time.Date(2026, 11, 25, 10, 0, 0, 0, time.UTC), record())
	var text bytes.Buffer
	attrs := []any{slog.Time("hour", want.Hour), slog.Int("records", want.Records), slog.String("digest", want.Digest), slog.Time("until", want.Until)}
	slog.New(slog.NewTextHandler(&text, nil)).Info(HeadMessage, attrs...)
	slog.New(slog.NewJSONHandler(&text, nil)).Info(HeadMessage, attrs...)
	for line := range bytes.Lines(text.Bytes()) {
		if got, ok, err := ParseHead(string(line)); !ok || err != nil || got != want {
			t.Errorf("%s is read as %+v, %t, %v", line, got, ok, err)
		}
	}
	if _, ok, err := ParseHead(`level=INFO msg="something else"`); ok || err != nil {
		t.Errorf("another line: %t, %v", ok, err)
	}
	for _, line := range []string{`msg="journal head" hour=yesterday`, `msg="journal head"`, `{"msg":"journal head","hour":7}`} {
		if _, ok, err := ParseHead(line); ok || err == nil {
			t.Errorf("%s: taken", line)
		}
	}
}
