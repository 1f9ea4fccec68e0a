package deploy_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/countmill/countmill/internal/testing/longtest"
)

// The last stage of the Dockerfile makes an image whose program runs, and may write to /data. The stage
// before needs a base image, which is not pulled: its binary is built here, and its other files are empty.
func TestImage(t *testing.T) {
	t.Parallel()
	longtest.Only(t, "builds countmill and an image")
	if runtime.GOOS != "linux" {
		t.Skip("the image is Linux's")
	}
	dir := t.TempDir()
	b := builder{program: needed(t, "buildah"), dir: t.TempDir()}
	if err := os.WriteFile(filepath.Join(dir, "Dockerfile"), []byte(lastStage(t)), 0o600); err != nil {
		t.Fatal(err)
	}
	stageBefore(t, dir)
	b.run(t, "build", "--isolation", "chroot", "--tag", "countmill-test", dir)
	t.Cleanup(func() { b.run(t, "rmi", "--force", "countmill-test") })
	container := b.run(t, "from", "countmill-test")
	t.Cleanup(func() { b.run(t, "rm", container) })
	countmill := func(args ...string) string {
		return b.run(t, append([]string{"run", "--isolation", "chroot", container, "--", "/countmill"}, args...)...)
	}
	if out := countmill("version"); !strings.HasPrefix(out, "countmill ") {
		t.Errorf("countmill version says %q in the image", out)
	}
	if out := countmill("token", "new", "web", "--scope", "read", "--file", "tokens"); out == "" { // user 65532 writes to /data
		t.Error("countmill token new prints no token in the image")
	}
	for format, want := range map[string]string{
		"{{.OCIv1.Config.User}}": "65532:65532", "{{.OCIv1.Config.WorkingDir}}": "/data",
		"{{.OCIv1.Config.Entrypoint}} {{.OCIv1.Config.Cmd}}": "[/countmill] [up]",
	} {
		if got := b.run(t, "inspect", "--type", "image", "--format", format, "countmill-test"); got != want {
			t.Errorf("%s of the image is %s, want %s", format, got, want)
		}
	}
}

// lastStage returns the last stage of the Dockerfile. It copies from the directory in place of the stage
// before.
func lastStage(t *testing.T) string {
	t.Helper()
	lines := dockerfile(t)
	from := slices.Index(lines, "FROM scratch")
	if from < 0 {
		t.Fatal("Dockerfile has no FROM scratch")
	}
	stage := strings.Join(lines[from:], "\n")
	if strings.Count(stage, "--from=build ") < 3 {
		t.Fatalf("the last stage copies too little:\n%s", stage)
	}
	return strings.ReplaceAll(stage, "--from=build ", "") + "\n"
}

// stageBefore makes the files that the last stage copies.
func stageBefore(t *testing.T, dir string) {
	t.Helper()
	i := slices.IndexFunc(dockerfile(t), func(line string) bool { return strings.Contains(line, " -o /out/countmill ") })
	if i < 0 {
		t.Fatal("Dockerfile does not build /out/countmill")
	}
	for _, sub := range []string{"out/data", "out/licences", "etc/ssl/certs"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "etc/ssl/certs/ca-certificates.crt"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	line := strings.TrimPrefix(dockerfile(t)[i], "RUN ")
	run(t, "sh", "-c", strings.Replace(line, "/out/countmill", "'"+filepath.Join(dir, "out/countmill")+"'", 1))
}

// A builder runs buildah with a store of its own.
type builder struct{ program, dir string }

// run returns the output of a command, which must succeed.
func (b builder) run(t *testing.T, args ...string) string {
	t.Helper()
	own := []string{"--storage-driver", "vfs", "--root", filepath.Join(b.dir, "root"), "--runroot", filepath.Join(b.dir, "run")}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 4*time.Minute) // cleanups run it too
	defer cancel()
	cmd := exec.CommandContext(ctx, b.program, append(own, args...)...)
	var failure strings.Builder
	cmd.Stderr = &failure
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("buildah %q: %v\n%s%s", args, err, out, &failure)
	}
	return strings.TrimSpace(string(out))
}
