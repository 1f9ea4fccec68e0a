package journal

import (
	"crypto/rand"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/countmill/countmill/store"
)

// Corrections and openings travel like records of commits, have no increments, and their seals hold.
func TestKinds(t *testing.T) {
	t.Parallel()
	cut := store.JournalAt(time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC))
	correction, opening := record(), record()
	correction.Kind = CorrectionKind
	opening.Kind, opening.Opening = OpeningKind, &Opening{Prefix: "billing:", From: 1, To: math.MaxUint64, Cut: cut, Settings: 7}
	header, err := DecodeOpening(opening.Opening.Encode(nil))
	if diff := cmp.Diff(opening.Opening, header); err != nil || diff != "" {
		t.Errorf("a header: %v (-want +got):\n%s", err, diff)
	}
	if _, err := DecodeOpening(append(opening.Opening.Encode(nil), 0)); err == nil {
		t.Error("a header with a byte more is taken")
	}
	s := sealer(t, 1)
	for name, r := range map[string]*Record{"a correction": correction, "an opening": opening} {
		if err := s.Seal(r, key, rand.Reader); err != nil {
			t.Fatal(err)
		}
		got := decoded(t, r.Encode(nil))
		if diff := cmp.Diff(r, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if err := s.Check(got, key); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		got.Lines(key, func(l Line) { t.Errorf("%s has an increment of %s", name, l.Entry.Counter) })
		entries := 0
		if got.Entries(key, func(Line) { entries++ }); entries != 3 {
			t.Errorf("%s has %d entries, want 3", name, entries)
		}
		got.Kind = AppliedKind
		if err := s.Check(got, key); err == nil {
			t.Errorf("%s passes as increments", name)
		}
		for n := range r.Encode(nil) {
			if _, err := Decode(r.Encode(nil)[:n]); err == nil {
				t.Fatalf("%s, cut at %d, is taken", name, n)
			}
		}
	}
	opening.Opening.From = 0
	if err := s.Check(opening, key); err == nil {
		t.Error("an opening of more counters passes")
	}
}
