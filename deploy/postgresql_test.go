package deploy_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/types"

	"github.com/countmill/countmill/command"
)

// The drop-in replaces the command of the unit by a command without a directory or backups.
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
