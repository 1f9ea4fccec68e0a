package command

import (
	"strings"
	"testing"
)

// The overview has each command once, and what they do begins in one column.
func TestOverview(t *testing.T) {
	t.Parallel()
	all := strings.Split(overview(), "\n\n")[2]
	rows := strings.Split(all, "\n")
	if len(rows) != len(commands()) {
		t.Fatalf("got %d rows for %d commands:\n%s", len(rows), len(commands()), all)
	}
	seen := map[string]bool{}
	column := strings.Index(rows[0], commands()[0].short)
	for i, cmd := range commands() {
		if seen[cmd.name] {
			t.Errorf("%s stands twice", cmd.name)
		}
		seen[cmd.name] = true
		if rows[i][column:] != cmd.short {
			t.Errorf("%q does not have what it does in column %d", rows[i], column)
		}
	}
}
