// Package deploy_test checks docker-compose.yml and the Dockerfile against the binary that they run. It
// does not need Docker.
package deploy_test

import (
	"context"
	"debug/elf"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/loader"
	"github.com/compose-spec/compose-go/v2/types"

	"github.com/countmill/countmill/command"
	"github.com/countmill/countmill/internal/app"
	"github.com/countmill/countmill/internal/testing/longtest"
)

// load loads a compose file, which must work without any variables.
func load(t *testing.T, name string) *types.Project {
	t.Helper()
	file, err := filepath.Abs(name)
	if err != nil {
		t.Fatal(err)
	}
	project, err := loader.LoadWithContext(t.Context(), types.ConfigDetails{
		WorkingDir: filepath.Dir(file), ConfigFiles: []types.ConfigFile{{Filename: file}}, Environment: types.Mapping{},
	})
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return project
}

var roles = map[string]struct {
	role app.Roles
	port string
}{"publisher": {app.Publisher, "8080"}, "reader": {app.Reader, "8081"}, "aggregator": {app.Aggregator, "8082"}, "indexer": {app.Indexer, "8083"}}

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

func TestServicesAreThere(t *testing.T) {
	t.Parallel()
	project := load(t, "../docker-compose.yml")
	want := []string{"aggregator", "datastore", "indexer", "memcached", "publisher", "pubsub", "reader"}
	if got := project.ServiceNames(); !slices.Equal(got, want) {
		t.Errorf("got services %q, want %q", got, want)
	}
	for name, s := range project.Services {
		if s.HealthCheck == nil || len(s.HealthCheck.Test) < 2 {
			t.Errorf("%s has no health check", name)
		}
		for dep, how := range s.DependsOn {
			if _, ok := project.Services[dep]; !ok || how.Condition == "" {
				t.Errorf("%s waits for %s with condition %q", name, dep, how.Condition)
			}
		}
		for _, p := range s.Ports {
			if p.HostIP != "127.0.0.1" {
				t.Errorf("%s publishes port %s on %q: neither countmill, which is insecure here, nor the emulators check their callers", name, p.Published, p.HostIP)
			}
		}
		_, isRole := roles[name]
		if built := s.Build != nil && s.Build.Dockerfile == "deploy/Dockerfile"; built != isRole {
			t.Errorf("%s is built from deploy/Dockerfile: %t, want %t", name, built, isRole)
		}
	}
}

// The binary must accept the arguments and variables of each service, and listen on the port that
// others use.
func TestCommandsAndEnvironments(t *testing.T) {
	t.Parallel()
	project := load(t, "../docker-compose.yml")
	for name, want := range roles {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := project.Services[name]
			path, flags := split(s.Command)
			if len(s.Entrypoint) != 0 || path != want.role.String() {
				t.Fatalf("entrypoint %q, command %q, want the command %s", s.Entrypoint, s.Command, want.role)
			}
			settings, err := command.Settings(path, flags, lookupIn(s.Environment))
			if settings == nil {
				t.Fatal(err)
			}
			if unknown := command.UnknownEnv(pairs(s.Environment)); len(unknown) > 0 {
				t.Errorf("nobody reads %q", unknown)
			}
			published := slices.ContainsFunc(s.Ports, func(p types.ServicePortConfig) bool { return p.Published == want.port })
			if listen := listens(settings); !published || listen != net.JoinHostPort("0.0.0.0", want.port) {
				t.Errorf("listens on %s and publishes %v, want port %s", listen, s.Ports, want.port)
			}
			if value(project, name, "COUNTMILL_SERVER") != "http://127.0.0.1:"+want.port {
				t.Errorf("its health check does not ask itself")
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
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

func TestVariablesAreOfTheirRole(t *testing.T) {
	t.Parallel()
	project := load(t, "../docker-compose.yml")
	for name, want := range roles {
		settings, err := command.Settings(want.role.String(), nil, lookupIn(nil))
		if settings == nil {
			t.Fatal(err)
		}
		env := project.Services[name].Environment
		for variable := range env {
			ours := strings.HasPrefix(variable, "COUNTMILL_") && variable != "COUNTMILL_SERVER"
			if ours && !slices.ContainsFunc(settings, func(s command.Setting) bool { return s.Env == variable }) {
				t.Errorf("%s: a %s does not read %s", name, want.role, variable)
			}
		}
	}
}

// Names in countmill's environment must be services, with the ports on which they listen, and with a
// dependency on them.
func TestAddressesAreServices(t *testing.T) {
	t.Parallel()
	project := load(t, "../docker-compose.yml")
	for _, test := range []struct{ service, variable, listens string }{
		{"pubsub", "PUBSUB_EMULATOR_HOST", "--host-port=0.0.0.0:8085"},
		{"datastore", "DATASTORE_EMULATOR_HOST", "--host-port=0.0.0.0:8086"},
		{"memcached", "COUNTMILL_CACHE", "memcached"}, // on 11211, its default
	} {
		if command := project.Services[test.service].Command; !slices.Contains(command, test.listens) {
			t.Errorf("%s runs %q, want %s", test.service, command, test.listens)
		}
		want := map[string]string{"pubsub": "pubsub:8085", "datastore": "datastore:8086", "memcached": "memcached://memcached:11211"}[test.service]
		for name := range roles {
			if got := value(project, name, test.variable); got != "" && got != want {
				t.Errorf("%s: %s is %q, want %q", name, test.variable, got, want)
			}
		}
	}
	for name := range roles {
		for service, variable := range map[string]string{"pubsub": "COUNTMILL_BUS", "datastore": "COUNTMILL_STORE", "memcached": "COUNTMILL_CACHE"} {
			_, waits := project.Services[name].DependsOn[service]
			if uses := value(project, name, variable) != ""; uses != waits {
				t.Errorf("%s uses %s: %t, waits for it: %t", name, service, uses, waits)
			}
		}
	}
}

func TestRolesMeet(t *testing.T) {
	t.Parallel()
	project := load(t, "../docker-compose.yml")
	bus, store := value(project, "publisher", "COUNTMILL_BUS"), value(project, "reader", "COUNTMILL_STORE")
	if got := value(project, "aggregator", "COUNTMILL_BUS"); got != bus {
		t.Errorf("publisher and aggregator have different buses, %s and %s", bus, got)
	}
	for _, role := range []string{"aggregator", "indexer"} {
		if got := value(project, role, "COUNTMILL_STORE"); got != store {
			t.Errorf("reader and %s have different stores, %s and %s", role, store, got)
		}
	}
	if u, err := url.Parse(bus); err != nil || u.Query().Get("subscription") == "" {
		t.Errorf("the bus %s names no subscription (%v)", bus, err)
	}
}

// value returns a variable of a service, or "".
func value(project *types.Project, service, variable string) string {
	v, _ := lookupIn(project.Services[service].Environment)(variable)
	return v
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
	for name, s := range load(t, "../docker-compose.yml").Services {
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
