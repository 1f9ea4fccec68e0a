package journal

import (
	"bytes"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/wire"
)

var key = store.NewJournalKey(time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC), 7)

func record() *Record {
	return &Record{Parts: []Part{
		{ID: wire.PartID{1}, Fingerprint: math.MaxUint64, Minute: 29_000_000, Sender: "shop", Entries: []Entry{{Counter: "billing:a", Delta: math.MinInt64}, {Counter: "billing:é", Delta: 3}}},
		{ID: wire.PartID{2}, Entries: []Entry{{Counter: strings.Repeat("x", 500), Delta: math.MaxInt64}}},
	}}
}

func decoded(t testing.TB, data []byte) *Record {
	t.Helper()
	r, err := Decode(data)
	if err != nil {
		t.Fatal(err)
	}
	return &r
}

func TestRecordsTravel(t *testing.T) {
	t.Parallel()
	erased := record()
	erased.Parts[0].Entries[0] = Entry{Erased: true}
	if text := string(erased.Encode(nil)); strings.Contains(text, "billing:a") {
		t.Error("an erased name is still there")
	}
	for name, r := range map[string]*Record{"whole": record(), "erased": erased, "empty": {}} {
		data := r.Encode(nil)
		if diff := cmp.Diff(r, decoded(t, data)); diff != "" {
			t.Errorf("%s: (-want +got):\n%s", name, diff)
		}
		most := store.MaxJournalRecord - MaxRecord
		for i := range r.Parts {
			most += MaxPartSize(r.Parts[i].Sender)
			for k := range r.Parts[i].Entries {
				most += MaxEntrySize(r.Parts[i].Entries[k].Counter)
			}
		}
		if len(data) > most {
			t.Errorf("%s: %d bytes, counted as at most %d", name, len(data), most)
		}
		for n := range data {
			if got, err := Decode(data[:n]); err == nil {
				t.Errorf("%s, cut at %d of %d bytes: got %+v and no error", name, n, len(data), got)
			}
		}
	}
}

func TestDecodeRefusesOthers(t *testing.T) {
	t.Parallel()
	good := record().Encode(nil)
	for name, data := range map[string][]byte{
		"a newer format": append([]byte{format + 1}, good[1:]...),
		"another kind":   append([]byte{format, 3}, good[2:]...),
		"more bytes":     append(bytes.Clone(good), 0),
		"many parts":     {format, 0, 0xff, 0xff, 0xff, 0xff, 0x0f},
	} {
		if got, err := Decode(data); err == nil {
			t.Errorf("%s: got %+v and no error", name, got)
		}
	}
}

func TestRowsTravel(t *testing.T) {
	t.Parallel()
	r := record()
	var lines []Line
	r.Lines(key, func(l Line) { lines = append(lines, l) })
	if len(lines) != 3 || lines[2].Place != (store.JournalPlace{Key: key, Position: 2}) {
		t.Fatalf("lines of a record: %+v", lines)
	}
	row := store.JournalRow{Counter: "billing:é", Place: lines[1].Place, Data: EncodeRow(nil, lines[1].Part, lines[1].Entry)}
	got, err := DecodeRow(&row)
	if err != nil {
		t.Fatal(err)
	}
	if got.Place != lines[1].Place || *got.Entry != *lines[1].Entry || got.Part.ID != lines[1].Part.ID || got.Part.Sender != "shop" || got.Part.Minute != 29_000_000 {
		t.Errorf("a row travels as %+v of %+v", got.Entry, got.Part)
	}
	row.Data = r.Encode(nil)
	if _, err := DecodeRow(&row); err == nil {
		t.Error("a whole record is taken for a row")
	}
}

// A stored record is refused, or the same after it is written again.
func FuzzDecode(f *testing.F) {
	f.Add(record().Encode(nil))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := Decode(data)
		if err != nil {
			return
		}
		if diff := cmp.Diff(&r, decoded(t, r.Encode(nil))); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}
