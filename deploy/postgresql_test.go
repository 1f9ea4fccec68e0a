package deploy_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/loader"
	"github.com/compose-spec/compose-go/v2/types"

	"github.com/countmill/countmill/command"
)

// The binary accepts the command and the variables of each countmill on PostgreSQL, which listens where its port leads.
func TestComposeOfPostgreSQL(t *testing.T) {
	t.Parallel()
	file, err := filepath.Abs("postgresql.yml")
	if err != nil {
		t.Fatal(err)
	}
	project, err := loader.LoadWithContext(t.Context(), types.ConfigDetails{
		WorkingDir: filepath.Dir(file), ConfigFiles: []types.ConfigFile{{Filename: file}}, Environment: types.Mapping{},
	})
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for name, s := range project.Services {
		if s.HealthCheck == nil {
			t.Errorf("%s has no health check", name)
		}
		if s.Build == nil {
			continue
		}
		n++
		path, flags := split(s.Command)
		settings, err := command.Settings(path, flags, lookupIn(s.Environment))
		if settings == nil || path != "up" {
			t.Fatalf("%s %q: %v", path, flags, err)
		}
		if listen := listens(settings); listen != "0.0.0.0:8080" || len(s.Ports) != 1 || s.Ports[0].Target != 8080 || s.Ports[0].HostIP != "127.0.0.1" {
			t.Errorf("%s listens on %s and publishes %v", name, listen, s.Ports)
		}
		of := make(types.MappingWithEquals)
		for variable, value := range s.Environment {
			if strings.HasPrefix(variable, "COUNTMILL_") {
				of[variable] = value
			}
		}
		if unknown := command.UnknownEnv(pairs(of)); len(unknown) > 0 {
			t.Errorf("nobody reads %q", unknown)
		}
	}
	if n != 2 {
		t.Errorf("got %d countmill, want 2", n)
	}
}

// The drop-in replaces the command of the unit by one that needs no directory, and takes no backups of one.
func TestUnitOnPostgreSQL(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("systemd/postgresql.conf")
	if err != nil {
		t.Fatal(err)
	}
	lines := regexp.MustCompile(`(?m)^(Environment|ExecStart)=(.*)$`).FindAllStringSubmatch(string(text), -1)
	if len(lines) != 3 || lines[0][0] != "Environment=" || lines[1][0] != "ExecStart=" {
		t.Fatalf("got the lines %q", lines)
	}
	store := "postgres://countmill@db/countmill"
	words := strings.Fields(lines[2][2])
	if settings, err := command.Settings(words[1], words[2:], lookupIn(types.MappingWithEquals{"COUNTMILL_STORE": &store})); settings == nil {
		t.Error(err)
	}
}
