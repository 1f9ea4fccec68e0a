package deploy_test

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/loader"
	"github.com/compose-spec/compose-go/v2/types"

	"github.com/countmill/countmill/command"
	"github.com/countmill/countmill/internal/testing/emulator"
)

// loadCompose loads a compose file, which must work without any variables.
func loadCompose(t *testing.T, name string) *types.Project {
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

// checkCompose loads a compose file. Each service has a health check, waits for services that are there, and publishes ports on this
// machine alone. The binary accepts the command and the variables of each countmill, which listens where its port leads, and asks
// itself whether it is ready. uses has the commands that name a bus or a store.
func checkCompose(t *testing.T, name string) (project *types.Project, uses map[string][]string) {
	t.Helper()
	project = loadCompose(t, name)
	uses = make(map[string][]string)
	for _, name := range project.ServiceNames() {
		s := project.Services[name]
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
				t.Errorf("%s publishes port %s on %q: neither countmill, which is insecure here, nor the others check their callers", name, p.Published, p.HostIP)
			}
		}
		if s.Build != nil {
			path := checkService(t, s)
			for _, variable := range []string{"COUNTMILL_BUS", "COUNTMILL_STORE"} {
				if v := s.Environment[variable]; v != nil {
					uses[*v] = append(uses[*v], path)
				}
			}
		}
	}
	return project, uses
}

// checkService checks a countmill, and returns its command.
func checkService(t *testing.T, s types.ServiceConfig) (path string) {
	t.Helper()
	path, flags := split(s.Command)
	settings, err := command.Settings(path, flags, lookupIn(s.Environment))
	if err != nil {
		t.Fatalf("%s %q: %v", path, flags, err)
	}
	if s.Build.Dockerfile != "deploy/Dockerfile" || len(s.Entrypoint) > 0 {
		t.Errorf("%s is built from %s and has the entrypoint %q", s.Name, s.Build.Dockerfile, s.Entrypoint)
	}
	for variable := range s.Environment {
		ours := strings.HasPrefix(variable, "COUNTMILL_") && variable != "COUNTMILL_SERVER"
		if ours && !slices.ContainsFunc(settings, func(s command.Setting) bool { return s.Env == variable }) {
			t.Errorf("%s: countmill %s does not read %s", s.Name, path, variable)
		}
	}
	_, port, _ := strings.Cut(listens(settings), "0.0.0.0:")
	if asks := s.Environment["COUNTMILL_SERVER"]; port == "" || asks == nil || *asks != "http://127.0.0.1:"+port {
		t.Errorf("%s listens on %s, and its health check does not ask itself", s.Name, listens(settings))
	}
	for _, p := range s.Ports {
		if fmt.Sprint(p.Target) != port {
			t.Errorf("%s listens on port %s and publishes %v", s.Name, port, p)
		}
	}
	return path
}

// Roles meet on emulators and memcached, and wait for those that they use.
func TestComposeOnEmulators(t *testing.T) {
	t.Parallel()
	project, uses := checkCompose(t, "../docker-compose.yml")
	if got := uses["pubsub://countmill-local/increments?subscription=aggregator&dead_letter=increments-dead"]; !slices.Equal(got, []string{"aggregator", "publisher"}) {
		t.Errorf("the bus is that of %q", got)
	}
	if got := uses["datastore://countmill-local"]; !slices.Equal(got, []string{"aggregator", "index work", "reader"}) {
		t.Errorf("the store is that of %q", got)
	}
	for _, of := range []struct{ service, listens, variable, value, used string }{
		{"pubsub", "--host-port=0.0.0.0:8085", "PUBSUB_EMULATOR_HOST", "pubsub:8085", "COUNTMILL_BUS"},
		{"datastore", "--host-port=0.0.0.0:8086", "DATASTORE_EMULATOR_HOST", "datastore:8086", "COUNTMILL_STORE"},
		{"memcached", "memcached", "COUNTMILL_CACHE", "memcached://memcached:11211", "COUNTMILL_CACHE"}, // on 11211, its default
	} {
		if command := project.Services[of.service].Command; !slices.Contains(command, of.listens) {
			t.Errorf("%s runs %q, want %s", of.service, command, of.listens)
		}
		for name, s := range project.Services {
			if got := s.Environment[of.variable]; got != nil && *got != of.value {
				t.Errorf("%s: %s is %q, want %q", name, of.variable, *got, of.value)
			}
			if _, waits := s.DependsOn[of.service]; waits != (s.Environment[of.used] != nil) {
				t.Errorf("%s waits for %s: %t, and has %s: %t", name, of.service, waits, of.used, !waits)
			}
		}
	}
}

// Roles meet on NATS and PostgreSQL, and the server of NATS accepts its configuration.
func TestComposeOfNATS(t *testing.T) {
	t.Parallel()
	project, uses := checkCompose(t, "nats.yml")
	if got := uses["nats://nats:4222/increments"]; !slices.Equal(got, []string{"aggregator", "publisher"}) {
		t.Errorf("the bus is that of %q", got)
	}
	if got := uses["postgres://countmill@postgresql/countmill"]; !slices.Equal(got, []string{"aggregator", "index work", "reader"}) {
		t.Errorf("the store is that of %q", got)
	}
	config := strings.NewReplacer("/data", t.TempDir(), "127.0.0.1:8222", "127.0.0.1:-1").Replace(project.Configs["nats"].Content)
	if !strings.Contains(config, "sync_interval: always") {
		t.Error("a power cut loses acknowledged messages")
	}
	emulator.NATSConfig(t, config)
}

// Two countmill share PostgreSQL.
func TestComposeOfPostgreSQL(t *testing.T) {
	t.Parallel()
	project, uses := checkCompose(t, "postgresql.yml")
	for _, s := range project.Services {
		if s.Build != nil && len(s.Ports) != 1 {
			t.Errorf("%s publishes %v", s.Name, s.Ports)
		}
	}
	if len(uses) != 1 || !slices.Equal(slices.Collect(maps.Values(uses))[0], []string{"up", "up"}) {
		t.Errorf("the store is that of %q", uses)
	}
}
