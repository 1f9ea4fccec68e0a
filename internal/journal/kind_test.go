package journal

import (
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/countmill/countmill/store"
)

// Corrections and opening balances travel like records of commits, and have no increments.
func TestKinds(t *testing.T) {
	t.Parallel()
	cut := store.JournalAt(time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC))
	correction, opening := record(), record()
	correction.Kind = CorrectionKind
	opening.Kind, opening.OpeningBalance = OpeningBalanceKind, &OpeningBalance{Prefix: "billing:", From: 1, To: math.MaxUint64, Cut: cut, Settings: 7}
	header, err := DecodeOpeningBalance(opening.OpeningBalance.Encode(nil))
	if diff := cmp.Diff(opening.OpeningBalance, header); err != nil || diff != "" {
		t.Errorf("a header: %v (-want +got):\n%s", err, diff)
	}
	if _, err := DecodeOpeningBalance(append(opening.OpeningBalance.Encode(nil), 0)); err == nil {
		t.Error("a header with a byte more is taken")
	}
	for name, r := range map[string]*Record{"a correction": correction, "an opening balance": opening} {
		got := decoded(t, r.Encode(nil))
		if diff := cmp.Diff(r, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		got.Lines(key, func(l Line) { t.Errorf("%s has an increment of %s", name, l.Entry.Counter) })
		entries := 0
		if got.Entries(key, func(Line) { entries++ }); entries != 3 {
			t.Errorf("%s has %d entries, want 3", name, entries)
		}
		for n := range r.Encode(nil) {
			if _, err := Decode(r.Encode(nil)[:n]); err == nil {
				t.Fatalf("%s, cut at %d, is taken", name, n)
			}
		}
	}
}
