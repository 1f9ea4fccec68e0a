package deploy_test

import (
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

// The binary accepts the command and the variables of each role on NATS, and roles meet. The server accepts
// its configuration.
func TestComposeOfNATS(t *testing.T) {
	t.Parallel()
	file, err := filepath.Abs("nats.yml")
	if err != nil {
		t.Fatal(err)
	}
	project, err := loader.LoadWithContext(t.Context(), types.ConfigDetails{
		WorkingDir: filepath.Dir(file), ConfigFiles: []types.ConfigFile{{Filename: file}}, Environment: types.Mapping{},
	})
	if err != nil {
		t.Fatal(err)
	}
	uses := map[string][]string{}
	for name, s := range project.Services {
		if s.HealthCheck == nil {
			t.Errorf("%s has no health check", name)
		}
		if s.Build == nil {
			continue
		}
		path, flags := split(s.Command)
		ours := maps.Clone(s.Environment)
		maps.DeleteFunc(ours, func(variable string, _ *string) bool { return !strings.HasPrefix(variable, "COUNTMILL_") })
		settings, err := command.Settings(path, flags, lookupIn(s.Environment))
		if settings == nil {
			t.Fatalf("%s %q: %v", path, flags, err)
		}
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
	for _, paths := range uses {
		slices.Sort(paths)
	}
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
