package command

import "testing"

func TestJournalErase(t *testing.T) {
	t.Parallel()
	f := newFakeServer(t, answer(200, `{"erased":3,"next":"k1","settled_until":"2026-11-25T10:00:00Z"}`), answer(200, `{"erased":2,"settled_until":"2026-11-25T10:00:01Z"}`))
	if got, want := try(t, nil, "journal", "erase", "user:42", "--yes", "--server", f.URL), (result{0, "5 entries erased, up to 2026-11-25T10:00:01Z\n", ""}); got != want || len(f.paths) != 2 {
		t.Errorf("got %+v, want %+v; asked %q", got, want, f.paths)
	}
	f = newFakeServer(t, answer(200, `{"erased":0,"others":2,"settled_until":"2026-11-25T10:00:00Z"}`))
	if got, want := try(t, nil, "journal", "erase", "user:42", "--yes", "--server", f.URL), (result{0, "0 entries erased, and 2 opening balances and corrections, up to 2026-11-25T10:00:00Z\n", ""}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	none := answer(200, `{"erased":0,"settled_until":"2026-11-25T10:00:00Z"}`)
	try(t, nil, "journal", "erase", "user:42", "--yes", "--server", newFakeServer(t, none).URL).wantError(t, 1, `there was nothing to erase: the journal has no entries of the counter "user:42" up to 2026-11-25T10:00:00Z, or no more of them`)
	try(t, nil, "journal", "erase", "billing:*", "--yes", "--server", newFakeServer(t, none).URL).wantError(t, 1, "no pattern")
	try(t, nil, "journal", "erase", "user:42").wantError(t, 2, "--yes")
	try(t, nil, "journal", "erase").wantError(t, 2, "NAME is missing")
}
