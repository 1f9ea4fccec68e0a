package command

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/countmill/countmill/internal/journal"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/wire"
)

// A sealedRecord is a record as the server answers with it.
type sealedRecord struct {
	Key      string    `json:"key"`
	ExpireAt time.Time `json:"expire_at"`
	Data     []byte    `json:"data"`

	content journal.Record
	place   store.JournalPlace
}

// change encodes a changed content.
func (r sealedRecord) change(t *testing.T, change func(*journal.Record)) sealedRecord {
	t.Helper()
	content, err := journal.Decode(r.Data)
	if err != nil {
		t.Fatal(err)
	}
	change(&content)
	r.Data = content.Encode(nil)
	return r
}

func recordsAnswer(t *testing.T, records ...sealedRecord) string {
	t.Helper()
	text, err := json.Marshal(map[string]any{"records": append([]sealedRecord{}, records...), "settled_until": "2030-01-01T00:00:00Z"})
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// A record that is missing, added, changed, moved, sealed with another key or without a seal is found.
func TestJournalCheck(t *testing.T) {
	t.Parallel()
	hour := time.Now().UTC().Truncate(time.Hour).Add(-2 * time.Hour)
	key := bytes.Repeat([]byte("k"), 32)
	sealer, err := journal.NewSealer(key)
	if err != nil {
		t.Fatal(err)
	}
	var all []sealedRecord
	made := journal.NewHeading(hour)
	for i := range 3 {
		r := sealedRecord{ExpireAt: hour.Add(24 * time.Hour)}
		r.place.Key = store.NewJournalKey(hour.Add(time.Duration(i)*time.Minute), uint64(i))
		r.content.Parts = []journal.Part{{ID: wire.PartID{byte(i)}, Sender: "shop", Entries: []journal.Entry{{Counter: "billing:a", Delta: 5}}}}
		if err := sealer.Seal(&r.content, r.place.Key, rand.Reader); err != nil {
			t.Fatal(err)
		}
		made.Add(r.place.Key, r.ExpireAt, &r.content)
		r.Key, r.Data = r.place.String(), r.content.Encode(nil)
		all = append(all, r)
	}
	head := made.Head()
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	line := fmt.Sprintf("level=INFO msg=%q hour=%s records=%d digest=%s until=%s\n", journal.HeadMessage, head.Hour.Format(time.RFC3339), head.Records, head.Digest, head.Until.Format(time.RFC3339))
	log, keyFile, other := write("log", "level=INFO msg=started\n"+line+line), write("key", string(key)+"\n"), write("other", strings.Repeat("o", 32))

	changed := all[1].change(t, func(r *journal.Record) { r.Parts[0].Entries[0].Delta++ })
	moved, swapped := slices.Clone(all), slices.Clone(all)
	moved[2].Key = store.JournalPlace{Key: store.NewJournalKey(hour.Add(time.Hour/2), 7)}.String()
	swapped[0].Data, swapped[1].Data = all[1].Data, all[0].Data
	erased := all[1].change(t, func(r *journal.Record) { r.Erase(&r.Parts[0].Entries[0]) })
	unsealed := all[1].change(t, func(r *journal.Record) { r.Sealed, r.Seal = false, [32]byte{} })
	for name, tt := range map[string]struct {
		records []sealedRecord
		key     string
		want    []string // kinds of problems
	}{
		"intact":      {all, keyFile, nil},
		"no key":      {all, "", nil},
		"erased":      {[]sealedRecord{all[0], erased, all[2]}, keyFile, nil},
		"missing":     {all[:2], keyFile, []string{"hour"}},
		"added":       {append(slices.Clone(all), moved[2]), keyFile, []string{"changed", "hour"}},
		"changed":     {[]sealedRecord{all[0], changed, all[2]}, keyFile, []string{"changed"}},
		"moved":       {moved, keyFile, []string{"changed", "hour"}},
		"swapped":     {swapped, keyFile, []string{"changed", "changed", "hour"}},
		"unsealed":    {[]sealedRecord{all[0], unsealed, all[2]}, keyFile, []string{"unsealed", "hour"}},
		"another key": {all, other, []string{"changed", "changed", "changed"}},
		"unreadable":  {[]sealedRecord{all[0], {Key: all[1].Key, Data: []byte("x")}, all[2]}, keyFile, []string{"unreadable", "hour"}},
	} {
		f := newFakeServer(t, answer(200, recordsAnswer(t, tt.records...)))
		args := []string{"journal", "check", "--heads", log, "--server", f.URL}
		if tt.key != "" {
			args = append(args, "--key", tt.key)
		}
		got := cli(t, nil, args...)
		var kinds []string
		for text := range strings.Lines(got.out) {
			kind, _, _ := strings.Cut(text, "\t")
			kinds = append(kinds, kind)
		}
		code := 0
		if len(tt.want) > 0 {
			code = 3
		}
		if got.code != code || !slices.Equal(kinds, tt.want) {
			t.Errorf("%s: got %+v, want problems %q", name, got, tt.want)
		}
	}
	expired := write("expired", strings.Replace(line, head.Until.Format(time.RFC3339), hour.Format(time.RFC3339), 1))
	if got := cli(t, nil, "journal", "check", "--heads", expired, "--server", newFakeServer(t).URL); got.code != 0 || !strings.Contains(got.errOut, "1 hours expired") {
		t.Errorf("an hour whose records are gone: %+v", got)
	}
	cli(t, nil, "journal", "check").wantError(t, 2, "--heads and --key are missing")
	for want, records := range map[string][]sealedRecord{"": all, "changed": {all[0], changed, all[2]}, "unsealed": {all[0], unsealed}} {
		f := newFakeServer(t, answer(200, recordsAnswer(t, records...)))
		got := cli(t, nil, "journal", "check", "--key", keyFile, "--server", f.URL)
		if kind, _, _ := strings.Cut(got.out, "\t"); kind != want || (got.code == 3) != (want != "") || !strings.Contains(got.errOut, fmt.Sprintf("%d records; without --heads", len(records))) {
			t.Errorf("without heads: got %+v, want %q", got, want)
		}
		if !slices.Equal(f.paths, []string{"/v1/journal/records"}) {
			t.Errorf("without heads: asked for %q, want all records", f.paths)
		}
	}
	cli(t, nil, "journal", "check", "--heads", keyFile).wantError(t, 1, "has no heads")
	cli(t, nil, "journal", "check", "--heads", write("bad", "msg=\"journal head\" hour=x\n")).wantError(t, 1, "line 1")
}

func TestJournalErase(t *testing.T) {
	t.Parallel()
	f := newFakeServer(t, answer(200, `{"erased":3,"next":"k1","settled_until":"2026-11-25T10:00:00Z"}`), answer(200, `{"erased":2,"settled_until":"2026-11-25T10:00:01Z"}`))
	if got, want := cli(t, nil, "journal", "erase", "user:42", "--yes", "--server", f.URL), (result{0, "5 entries erased, up to 2026-11-25T10:00:01Z\n", ""}); got != want || len(f.paths) != 2 {
		t.Errorf("got %+v, want %+v; asked %q", got, want, f.paths)
	}
	f = newFakeServer(t, answer(200, `{"erased":0,"others":2,"settled_until":"2026-11-25T10:00:00Z"}`))
	if got, want := cli(t, nil, "journal", "erase", "user:42", "--yes", "--server", f.URL), (result{0, "0 entries erased, and 2 opening balances and corrections, up to 2026-11-25T10:00:00Z\n", ""}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	none := answer(200, `{"erased":0,"settled_until":"2026-11-25T10:00:00Z"}`)
	cli(t, nil, "journal", "erase", "user:42", "--yes", "--server", newFakeServer(t, none).URL).wantError(t, 1, `there was nothing to erase: the journal has no entries of the counter "user:42" up to 2026-11-25T10:00:00Z, or no more of them`)
	cli(t, nil, "journal", "erase", "billing:*", "--yes", "--server", newFakeServer(t, none).URL).wantError(t, 1, "no pattern")
	cli(t, nil, "journal", "erase", "user:42").wantError(t, 2, "--yes")
	cli(t, nil, "journal", "erase").wantError(t, 2, "NAME is missing")
}
