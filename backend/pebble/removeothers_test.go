package pebble

import (
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// A logged file system notes removals and syncs of directories.
type loggedFS struct {
	vfs.FS
	log *[]string
}

func (f loggedFS) Remove(name string) error {
	*f.log = append(*f.log, f.PathBase(name))
	return f.FS.Remove(name)
}

func (f loggedFS) OpenDir(name string) (vfs.File, error) {
	*f.log = append(*f.log, "sync")
	return f.FS.OpenDir(name)
}

// A directory that was refused loses its new markers before the files that they name, whenever the power fails.
func TestMarkersGoFirst(t *testing.T) {
	t.Parallel()
	files, log := vfs.NewMem(), []string(nil)
	for _, name := range []string{"000002.sst", "000007.log", "MANIFEST-000001", "MANIFEST-000008", "OPTIONS-000009", "marker.manifest.000001.MANIFEST-000001", "marker.manifest.000002.MANIFEST-000008"} {
		f, err := files.Create(name, vfs.WriteCategoryUnspecified)
		if err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if err := removeOthers(loggedFS{files, &log}, "", "", []string{"000002.sst", "MANIFEST-000001", "marker.manifest.000001.MANIFEST-000001"}); err != nil {
		t.Fatal(err)
	}
	want := []string{"marker.manifest.000002.MANIFEST-000008", "sync", "OPTIONS-000009", "sync", "MANIFEST-000008", "sync", "000007.log", "sync"}
	if !slices.Equal(log, want) {
		t.Errorf("got %q, want %q", log, want)
	}
}
