package deploy_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/types"

	"github.com/countmill/countmill/command"
	"github.com/countmill/countmill/internal/testing/emulator"
)

// loadApart loads a compose file whose countmill have a network of their own. The binary accepts the command and the variables of
// each, which listens where its port leads. uses has the commands that name a bus or a store.
func loadApart(t *testing.T, name string) (project *types.Project, uses map[string][]string) {
	t.Helper()
	project = load(t, name)
	uses = make(map[string][]string)
	for _, name := range slices.Sorted(maps.Keys(project.Services)) {
		s := project.Services[name]
		if s.HealthCheck == nil {
			t.Errorf("%s has no health check", name)
		}
		if s.Build == nil {
			continue
		}
		path, flags := split(s.Command)
		settings, err := command.Settings(path, flags, lookupIn(s.Environment))
		if settings == nil {
			t.Fatalf("%s %q: %v", path, flags, err)
		}
		ours := maps.Clone(s.Environment)
		maps.DeleteFunc(ours, func(variable string, _ *string) bool { return !strings.HasPrefix(variable, "COUNTMILL_") })
		if unknown := command.UnknownEnv(pairs(ours)); len(unknown) > 0 {
			t.Errorf("nobody reads %q", unknown)
		}
		for _, variable := range []string{"COUNTMILL_BUS", "COUNTMILL_STORE"} {
			if v := value(project, name, variable); v != "" {
				uses[v] = append(uses[v], path)
			}
		}
		for _, p := range s.Ports {
			if p.HostIP != "127.0.0.1" || listens(settings) != "0.0.0.0:8080" || p.Target != 8080 {
				t.Errorf("%s listens on %s and publishes %v", name, listens(settings), p)
			}
		}
	}
	return project, uses
}

// Roles meet on NATS and PostgreSQL, and the server of NATS accepts its configuration.
func TestComposeOfNATS(t *testing.T) {
	t.Parallel()
	project, uses := loadApart(t, "nats.yml")
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
	project, uses := loadApart(t, "postgresql.yml")
	for _, s := range project.Services {
		if s.Build != nil && len(s.Ports) != 1 {
			t.Errorf("%s publishes %v", s.Name, s.Ports)
		}
	}
	if len(uses) != 1 || !slices.Equal(slices.Collect(maps.Values(uses))[0], []string{"up", "up"}) {
		t.Errorf("the store is that of %q", uses)
	}
}
