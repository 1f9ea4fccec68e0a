package main

import (
	"bytes"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/parquet-go/parquet-go"

	"github.com/countmill/countmill/client"
	"github.com/countmill/countmill/command"
	"github.com/countmill/countmill/internal/journal/journaltest"
)

// asProgram makes the test binary this program, for tests that kill it.
const asProgram = "COUNTMILL_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
	}
	os.Exit(m.Run())
}

func exportArgs(path, server string) []string {
	return []string{"journal", "export", "--from", "2026-11-25T00:00:00Z", "--to", "2026-11-25T06:00:00Z", "--output", path, "--server", server}
}

func exportTo(t *testing.T, path, server string) {
	t.Helper()
	var errOut bytes.Buffer
	all := append(options(), command.Args(exportArgs(path, server)...), command.Context(t.Context()), command.Environ(nil), command.Streams(nil, &errOut, &errOut))
	if code := command.Main(all...); code != 0 {
		t.Fatalf("exit %d: %s", code, errOut.String())
	}
}

func readParquet(t *testing.T, path string) (all []client.JournalEntry, groups int) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	file, err := parquet.OpenFile(f, info.Size())
	if err != nil {
		t.Fatal(err)
	}
	rows, err := parquet.ReadFile[row](path)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rows {
		all = append(all, client.JournalEntry{Key: r.Key, Time: time.UnixMicro(r.Time).UTC(), Counter: r.Counter, Delta: r.Delta, Part: r.Part, Sender: r.Sender})
	}
	if int64(len(all)) != file.NumRows() {
		t.Errorf("the footer has %d rows, and the file has %d", file.NumRows(), len(all))
	}
	return all, len(file.RowGroups())
}

// The rows are the journal's entries, in row groups of 100,000, and the same export has the same bytes.
func TestParquet(t *testing.T) {
	for _, entries := range []int{0, 1, 250_000} {
		records, want := journaltest.Records(entries)
		server := journaltest.Serve(t, journaltest.Store(records)).URL
		path := filepath.Join(t.TempDir(), "day.parquet")
		exportTo(t, path, server)
		got, groups := readParquet(t, path)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%d entries (-journal +file):\n%.2000s", entries, diff)
		}
		if wantGroups := (len(want) + 99_999) / 100_000; groups != wantGroups {
			t.Errorf("%d entries in %d row groups, want %d", len(want), groups, wantGroups)
		}
		first, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		exportTo(t, path, server)
		if again, err := os.ReadFile(path); err != nil || !bytes.Equal(first, again) {
			t.Errorf("%d entries: the second file differs (%v)", entries, err)
		}
	}
}

// More row groups than a file can have are an error, and not a file that no reader opens.
func TestFooterOfTooManyRowGroups(t *testing.T) {
	_, note, err := rowGroup(nil, 4, []client.JournalEntry{{Key: "k"}})
	if err != nil {
		t.Fatal(err)
	}
	if out, err := footer(slices.Repeat([][]byte{note}, 32_768)); err == nil || !strings.Contains(err.Error(), "32767 row groups at most") {
		t.Errorf("got %d bytes, %v", len(out), err)
	}
	t.Logf("a note of %d bytes", len(note))
	if _, err := footer(slices.Repeat([][]byte{note}, 32_767)); err != nil {
		t.Error(err)
	}
}

// The file of an export has the same bytes whether it was killed or not.
func TestParquetThroughKills(t *testing.T) {
	if testing.Short() {
		t.Skip("kills exports")
	}
	records, _ := journaltest.Records(450_000)
	server := journaltest.Serve(t, journaltest.Store(records)).URL
	dir := t.TempDir()
	whole, killed := filepath.Join(dir, "whole.parquet"), filepath.Join(dir, "killed.parquet")
	export := func(path string, log *bytes.Buffer) *exec.Cmd {
		run := exec.Command(os.Args[0], exportArgs(path, server)...)
		run.Env = append(os.Environ(), asProgram+"=1")
		run.Stderr = log
		return run
	}
	var log bytes.Buffer
	began := time.Now()
	if err := export(whole, &log).Run(); err != nil {
		t.Fatalf("%v\n%s", err, log.String())
	}
	took, kills, resumed := time.Since(began), 0, 0
	for {
		log.Reset()
		run := export(killed, &log)
		if err := run.Start(); err != nil {
			t.Fatal(err)
		}
		timer := time.AfterFunc(time.Duration(rand.Int64N(int64(took))), func() { run.Process.Kill() })
		err := run.Wait()
		timer.Stop()
		if err == nil {
			break
		}
		if _, err := os.Stat(killed); err == nil { // the file was whole, and another export would begin anew
			resumed = 0
			break
		}
		if state, err := os.ReadFile(killed + ".countmill-export"); err == nil && bytes.Count(state, []byte("\n")) > 1 {
			resumed++
		}
		if kills++; kills == 50 || run.ProcessState.Exited() {
			t.Fatalf("after %d kills: %v\n%s", kills, err, log.String())
		}
	}
	if resumed > 0 && !strings.Contains(log.String(), "from an export that was stopped") {
		t.Errorf("the last of %d exports began anew: %s", kills+1, log.String())
	}
	want, err := os.ReadFile(whole)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(killed); err != nil || !bytes.Equal(got, want) {
		t.Errorf("after %d kills: %d bytes differ from the %d of an export without kills, %v", kills, len(got), len(want), err)
	}
	t.Logf("%d kills, %d left whole row groups, an export takes %s", kills, resumed, took)
}
