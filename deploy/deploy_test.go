// Package deploy_test checks the files of deployments against the binary that they run. It does not need Docker.
package deploy_test

import (
	"context"
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/types"

	"github.com/countmill/countmill/command"
	"github.com/countmill/countmill/internal/testing/longtest"
)

func lookupIn(env types.MappingWithEquals) func(string) (string, bool) {
	return func(name string) (string, bool) {
		value := env[name]
		if value == nil {
			return "", false
		}
		return *value, true
	}
}

func pairs(env types.MappingWithEquals) []string {
	var all []string
	for name := range env {
		all = append(all, name+"=x")
	}
	return all
}

// listens returns the address in settings.
func listens(settings []command.Setting) string {
	for _, s := range settings {
		if s.Name == "listen" {
			return s.Value
		}
	}
	return ""
}

// dockerfile returns the instructions, one a line.
func dockerfile(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile("Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			lines = append(lines, line)
		}
	}
	return lines
}

func TestDockerfile(t *testing.T) {
	t.Parallel()
	lines := dockerfile(t)
	for _, want := range []string{
		"FROM scratch", "USER 65532:65532", `ENTRYPOINT ["/countmill"]`, `CMD ["up"]`,
		"COPY --from=build /out/countmill /countmill", "COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/",
	} {
		if !slices.Contains(lines, want) {
			t.Errorf("Dockerfile lacks %q", want)
		}
	}
	for _, tc := range []struct{ name, value, want string }{
		{"COUNTMILL_TOKENS", "/tokens", ""},
		{"COUNTMILL_INSECURE", "true", ""},
		{"COUNTMILL_INSECURE", "false", "give --tokens FILE"},
		{"COUNTMILL_NOTHING", "", "give --tokens FILE"},
	} {
		settings, err := command.Settings("up", nil, inImage(lines, tc.name, tc.value))
		if listen := listens(settings); listen != "0.0.0.0:8080" {
			t.Fatalf("countmill up in the image: listens on %s (%v)", listen, err)
		}
		if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("with %s=%s: got %v, want %q", tc.name, tc.value, err, tc.want)
		}
	}
}

// inImage returns the environment of the image with one more variable.
func inImage(lines []string, name, value string) func(string) (string, bool) {
	return func(asked string) (string, bool) {
		if asked == name {
			return value, true
		}
		for _, line := range lines {
			if value, ok := strings.CutPrefix(line, "ENV "+asked+"="); ok {
				return value, true
			}
		}
		return "", false
	}
}

// The build line must make static binaries.
func TestBinaryIsStatic(t *testing.T) {
	t.Parallel()
	longtest.Only(t, "builds countmill without cgo")
	if runtime.GOOS != "linux" {
		t.Skip("the image is Linux's")
	}
	for _, program := range []string{"", "countmill-backup"} {
		t.Run(program, func(t *testing.T) {
			t.Parallel()
			checkBinary(t, program)
		})
	}
}

// checkBinary builds the program that is the build argument PROGRAM.
func checkBinary(t *testing.T, program string) {
	t.Helper()
	i := slices.IndexFunc(dockerfile(t), func(line string) bool { return strings.Contains(line, " build -") })
	if i < 0 {
		t.Fatal("Dockerfile does not build")
	}
	binary := filepath.Join(t.TempDir(), "countmill")
	line := strings.TrimPrefix(dockerfile(t)[i], "RUN ")
	if !strings.Contains(line, " -o /out/countmill ") {
		t.Fatalf("%q does not build /out/countmill", line)
	}
	run(t, "env", "PROGRAM="+program, "sh", "-c", strings.Replace(line, "/out/countmill", "'"+binary+"'", 1))
	f, err := elf.Open(binary)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if libs, err := f.ImportedLibraries(); err != nil || len(libs) > 0 || slices.ContainsFunc(f.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP }) {
		t.Errorf("the binary needs %q (%v), want nothing", libs, err)
	}
	if out := run(t, binary, "version"); !strings.HasPrefix(out, "countmill ") {
		t.Errorf("countmill version says %q", out)
	}
	out, err := entry(t, binary, "restore", "s3://bucket?regoin=x", "--list").CombinedOutput()
	if unknown := strings.Contains(string(out), "unknown scheme"); err == nil || unknown != (program == "") {
		t.Errorf("restore from a URL with a mistake says %q (%v)", out, err)
	}
	for name, s := range loadCompose(t, "../docker-compose.yml").Services {
		if test := s.HealthCheck.Test; slices.Contains(test, "/countmill") {
			out, err := entry(t, binary, append(slices.Clone(test[2:]), "--server", "127.0.0.1:1")...).CombinedOutput()
			if err == nil || !strings.Contains(string(out), "nothing answers") {
				t.Errorf("%s: health check %q with nothing there: %s (%v)", name, test, out, err)
			}
		}
	}
}

func entry(t *testing.T, name string, args ...string) *exec.Cmd {
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = ".."
	return cmd
}

func run(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := entry(t, name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %q: %v\n%s", name, args, err, out)
	}
	return string(out)
}
