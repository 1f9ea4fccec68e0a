package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// maxBinary is the limit of a binary in a release: docs/evidence/benchmarks.md has the figure.
const maxBinary = 31_100_000

// host is the target of this machine, or the test is skipped.
func host(t *testing.T) target {
	t.Helper()
	if testing.Short() {
		t.Skip("builds countmill twice")
	}
	i := slices.IndexFunc(targets, func(t target) bool { return t.os == runtime.GOOS && t.arch == runtime.GOARCH })
	if i < 0 {
		t.Skipf("there is no release for %s/%s", runtime.GOOS, runtime.GOARCH)
	}
	return targets[i]
}

// Two builds from two directories have the same bytes, which say their version. They contain no path of
// this machine, and every linked module has a licence.
func TestArchive(t *testing.T) {
	target := host(t)
	dir := t.TempDir()
	elsewhere, binary := filepath.Join(dir, "else", "where"), filepath.Join(dir, target.binary())
	if err := copySource("../..", elsewhere); err != nil {
		t.Fatal(err)
	}
	b := build{source: "../..", version: "v0.1.0-test", revision: "c0ffee"}
	if err := b.twice(target, binary, elsewhere, false); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(binary, "version").CombinedOutput()
	if want := "countmill v0.1.0-test (revision c0ffee, "; err != nil || !strings.HasPrefix(string(out), want) {
		t.Errorf("got version %q, %v, want %q...", out, err, want)
	}
	files, err := b.contents(target, binary)
	if err != nil {
		t.Fatal(err)
	}
	checkNoPaths(t, files[0].data)
	t.Logf("the binary has %d bytes", len(files[0].data))
	if len(files[0].data) > maxBinary {
		t.Errorf("the binary has %d bytes, at most %d are allowed", len(files[0].data), maxBinary)
	}
	for _, module := range []string{"cloud.google.com/go/datastore v", "github.com/cockroachdb/pebble/v2 v", "the Go standard library"} {
		if !bytes.Contains(files[2].data, []byte("==== "+module)) {
			t.Errorf("LICENCES.txt does not name %q", module)
		}
	}
	if !bytes.Contains(files[3].data, []byte("github.com/ThreeDotsLabs/watermill v1.")) {
		t.Errorf("MODULES.txt does not name Watermill:\n%s", files[3].data)
	}
}

// checkNoPaths looks for the directories of this machine that a build without -trimpath contains.
func checkNoPaths(t *testing.T, binary []byte) {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	modules, err := exec.Command("go", "env", "GOMODCACHE").Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{root + "/command", strings.TrimSpace(string(modules)) + "/"} {
		if bytes.Contains(binary, []byte(path)) {
			t.Errorf("the binary contains the path %s", path)
		}
	}
}

func TestPack(t *testing.T) {
	files := []file{{"countmill", 0o755, []byte("program")}, {"LICENSE", 0o644, []byte("text")}}
	for _, of := range []target{{"linux", "amd64"}, {"windows", "amd64"}} {
		ext, first, err := pack(of, "folder", files)
		if err != nil {
			t.Fatal(err)
		}
		_, second, err := pack(of, "folder", files)
		if err != nil || !bytes.Equal(first, second) {
			t.Errorf("%s: two archives of the same files differ, %v", of, err)
		}
		got := unpack(t, ext, first)
		want := []string{"-rwxr-xr-x folder/countmill program", "-rw-r--r-- folder/LICENSE text"}
		if !slices.Equal(got, want) {
			t.Errorf("%s: got %q, want %q", of, got, want)
		}
	}
}

// unpack returns a line for each file of an archive.
func unpack(t *testing.T, ext string, data []byte) (all []string) {
	t.Helper()
	text := func(r io.Reader, err error) string {
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		return string(got)
	}
	if ext == ".zip" {
		z, err := zip.NewReader(bytes.NewReader(data), int64(len(data)))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range z.File {
			r, err := f.Open()
			all = append(all, f.Mode().String()+" "+f.Name+" "+text(r, err))
		}
		return all
	}
	z, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	r := tar.NewReader(z)
	for {
		h, err := r.Next()
		if err == io.EOF {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, h.FileInfo().Mode().String()+" "+h.Name+" "+text(r, nil))
	}
}

// A module whose licence is only above, or only beside, the linked package is found; one without is an error.
func TestLicences(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"m/LICENSE": "above", "m/part/LICENSE-APACHE": "beside", "m/other/NOTICE": "not linked", "GO/LICENSE": "Go's"} {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	m := linked{name: "example.com/m v1.0.0", dir: filepath.Join(dir, "m")}
	if _, err := sorted(targets[0], map[string]*linked{m.name: &m}); err == nil || !strings.Contains(err.Error(), "has no licence file") {
		t.Errorf("got %v for a module without a licence", err)
	}
	if err := m.collect(filepath.Join(dir, "m", "part")); err != nil {
		t.Fatal(err)
	}
	all, err := sorted(targets[0], map[string]*linked{m.name: &m})
	if err != nil {
		t.Fatal(err)
	}
	got, err := licences(filepath.Join(dir, "GO"), all)
	want := "==== the Go standard library: LICENSE\n\nGo's\n\n==== example.com/m v1.0.0: LICENSE\n\nabove\n\n" +
		"==== example.com/m v1.0.0: part/LICENSE-APACHE\n\nbeside\n\n"
	if err != nil || string(got) != want {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
}

func TestVersionIsChecked(t *testing.T) {
	for _, version := range []string{"", "0.1.0", "v0.1", "v0.1.0 -X main.evil=1"} {
		if err := (release{version: version}).run(); err == nil || !strings.Contains(err.Error(), "write it as v0.1.0") {
			t.Errorf("version %q: got %v", version, err)
		}
	}
}
