package journal

import (
	"bytes"
	"crypto/rand"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/wire"
)

var key = store.NewJournalKey(time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC), 7)

func sealer(t testing.TB, b byte) *Sealer {
	t.Helper()
	s, err := NewSealer(bytes.Repeat([]byte{b}, MinKey))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

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
	sealed := record()
	if err := sealer(t, 1).Seal(sealed, key, rand.Reader); err != nil {
		t.Fatal(err)
	}
	erased := decoded(t, sealed.Encode(nil))
	erased.Erase(&erased.Parts[0].Entries[1])
	plain := record()
	plain.Erase(&plain.Parts[0].Entries[0])
	for name, r := range map[string]*Record{"plain": record(), "sealed": sealed, "sealed and erased": erased, "erased": plain, "empty": {}} {
		data := r.Encode(nil)
		if diff := cmp.Diff(r, decoded(t, data)); diff != "" {
			t.Errorf("%s: (-want +got):\n%s", name, diff)
		}
		most := store.MaxJournalRecord - MaxRecord
		for i := range r.Parts {
			most += MaxPartSize(r.Parts[i].Sender)
			for k := range r.Parts[i].Entries {
				most += max(MaxEntrySize(r.Parts[i].Entries[k].Counter), 1+hashLen)
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
		"another flag":   append([]byte{format, 6}, good[2:]...),
		"more bytes":     append(bytes.Clone(good), 0),
		"many parts":     {format, 0, 0xff, 0xff, 0xff, 0xff, 0x0f},
	} {
		if got, err := Decode(data); err == nil {
			t.Errorf("%s: got %+v and no error", name, got)
		}
	}
}

// Every change of a sealed record is noticed, but for the erasure of entries.
func TestSealsHold(t *testing.T) {
	t.Parallel()
	s := sealer(t, 1)
	sealed := func() *Record {
		r := record()
		if err := s.Seal(r, key, rand.Reader); err != nil {
			t.Fatal(err)
		}
		return r
	}
	if err := s.Check(sealed(), key); err != nil {
		t.Errorf("an unchanged record: %v", err)
	}
	later := key
	later[7]++
	if err := s.Check(sealed(), later); err == nil {
		t.Error("a record under another key passes")
	}
	if err := sealer(t, 2).Check(sealed(), key); err == nil {
		t.Error("a record that was sealed with another key passes")
	}
	if err := s.Check(record(), key); err == nil {
		t.Error("a record without a seal passes")
	}
	for name, change := range map[string]func(r *Record){
		"a delta":          func(r *Record) { r.Parts[0].Entries[0].Delta++ },
		"a counter":        func(r *Record) { r.Parts[0].Entries[0].Counter = "billing:b" },
		"a salt":           func(r *Record) { r.Parts[0].Entries[0].Salt[0]++ },
		"a sender":         func(r *Record) { r.Parts[0].Sender = "web" },
		"an id":            func(r *Record) { r.Parts[1].ID[3]++ },
		"a fingerprint":    func(r *Record) { r.Parts[1].Fingerprint++ },
		"a minute":         func(r *Record) { r.Parts[1].Minute++ },
		"the seal":         func(r *Record) { r.Seal[31]++ },
		"parts in order":   func(r *Record) { r.Parts[0], r.Parts[1] = r.Parts[1], r.Parts[0] },
		"entries in order": func(r *Record) { e := r.Parts[0].Entries; e[0], e[1] = e[1], e[0] },
		"a part less":      func(r *Record) { r.Parts = r.Parts[:1] },
		"an entry less":    func(r *Record) { r.Parts[0].Entries = r.Parts[0].Entries[:1] },
		"another hash":     func(r *Record) { r.Parts[0].Entries[0] = Entry{Erased: true} },
	} {
		r := sealed()
		change(r)
		if err := s.Check(r, key); err == nil {
			t.Errorf("a change of %s passes", name)
		}
	}
	r := sealed()
	r.Erase(&r.Parts[0].Entries[0])
	r.Erase(&r.Parts[1].Entries[0])
	if err := s.Check(decoded(t, r.Encode(nil)), key); err != nil {
		t.Errorf("after an erasure: %v", err)
	}
	if text := string(r.Encode(nil)); strings.Contains(text, "billing:a") || strings.Contains(text, "xxx") {
		t.Error("an erased name is still there")
	}
}

func TestKeysOfSealersAreLong(t *testing.T) {
	t.Parallel()
	if _, err := NewSealer(make([]byte, MinKey-1)); err == nil {
		t.Errorf("a key of %d bytes is taken", MinKey-1)
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
