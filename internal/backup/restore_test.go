package backup

import (
	"maps"
	"os"
	"path/filepath"
	"testing"
)

// A restore removes the leftovers of a killed one, and names them. A file of that name is somebody else's.
func TestRestoreAfterAKill(t *testing.T) {
	t.Parallel()
	b, f := newMemory(), folder{t.TempDir()}
	f.step(t, 1)
	if _, err := keeper(t, b, f, Config{}).Backup(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	above := t.TempDir()
	dir := filepath.Join(above, "restored")
	left := folder{dir + partialSuffix}
	if err := os.Mkdir(left.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	left.write(t, "000001.sst", "some of it")
	left.write(t, "000009.sst", "of another backup")
	r, err := Restore(t.Context(), b, Choice{}, dir)
	if err != nil || r.Left != left.dir || !maps.Equal(filesOf(t, dir), f.files(t)) {
		t.Errorf("got %+v, %v, want %s removed", r, err, left.dir)
	}
	if entries, err := os.ReadDir(above); err != nil || len(entries) != 1 {
		t.Errorf("got %v, %v, want the restored directory alone", entries, err)
	}
	second := filepath.Join(above, "second")
	folder{above}.write(t, filepath.Base(second)+partialSuffix, "somebody's file")
	if r, err := Restore(t.Context(), b, Choice{}, second); err == nil || r.Left != "" {
		t.Errorf("beside a file: got %+v, %v, want an error", r, err)
	}
	if _, err := os.Stat(second + partialSuffix); err != nil {
		t.Errorf("the file: %v", err)
	}
}
