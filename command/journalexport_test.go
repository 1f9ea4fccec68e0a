package command

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/countmill/countmill/internal/journal/journaltest"
)

const period = "--from 2026-11-25T00:00:00Z --to 2026-11-26T00:00:00Z"

func exportArgs(rest ...string) []string {
	return append(append([]string{"journal", "export"}, strings.Fields(period)...), rest...)
}

// The command ends with the entries in the file, and says how many there are.
func TestJournalExport(t *testing.T) {
	t.Parallel()
	records, all := journaltest.Records(3)
	server := journaltest.Serve(t, journaltest.Store(records)).URL
	e := all[0]
	first := `{"key":"` + e.Key + `","time":"` + e.Time.Format("2006-01-02T15:04:05.000000Z") + `"`
	got := try(t, nil, exportArgs("--server", server)...)
	if lines := strings.Count(got.out, "\n"); got.code != 0 || lines != len(all) || !strings.HasPrefix(got.out, first) || !strings.Contains(got.errOut, "entries\n") {
		t.Errorf("got %d lines of %d entries, %+v, want %s", lines, len(all), got, first)
	}
	path := filepath.Join(t.TempDir(), "day.ndjson")
	if got := try(t, nil, exportArgs("billing:*", "--output", path, "--server", server)...); got.code != 0 || got.out != "" {
		t.Errorf("got %+v", got)
	}
	if text, err := os.ReadFile(path); !strings.Contains(string(text), `"counter":"billing:`) || strings.Contains(string(text), "shop:") {
		t.Errorf("got %s, %v", text, err)
	}
}

// A file is there when it is whole.
func TestStoppedJournalExport(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	forbidden := newFakeServer(t, answer(403, `{"type":"urn:countmill:problem:forbidden"}`))
	try(t, nil, exportArgs("--output", filepath.Join(dir, "day.ndjson"), "--server", forbidden.URL)...).wantError(t, 1, "the export is not whole")
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

func TestJournalExportSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	records, _ := journaltest.Records(1)
	server := journaltest.Serve(t, journaltest.Store(records)).URL
	for _, tt := range []struct {
		args string
		code int
		want string
	}{
		{"", 2, "--from is missing: name both ends of the period"},
		{"--from 2026-11-25T00:00:00Z", 2, "--to is missing"},
		{"--from yesterday", 2, "--from: must be like 2006-01-02T15:04:05.000000Z"},
		{"--from 1969-12-31T00:00:00Z --to 2026-11-25T00:00:00Z", 2, "--from: must be from 1970 to 2261"},
		{"--from 2026-11-25T00:00:00.0000001Z --to 2026-11-26T00:00:00Z", 2, "--from: must have at most six digits after the seconds"},
		{"--from 2026-11-25T00:00:00Z --to 2026-11-25T00:00:00Z", 2, "--to: must be after --from"},
		{period + " a b", 2, "name one counter or prefix at most"},
		{period + " " + strings.Repeat("x", 501), 2, "500 bytes"},
		{"--from 2026-11-25T00:00:00Z --to 2027-11-25T00:00:00Z", 1, "--to: 2027-11-25T00:00:00.000000Z is after 2027-03-04T"},
	} {
		args := append([]string{"journal", "export", "--server", server}, strings.Fields(tt.args)...)
		try(t, nil, args...).wantError(t, tt.code, tt.want)
	}
}
