package command

import (
	"strings"
	"testing"
)

// The overview has each command once, in its group, and short texts begin in one column.
func TestOverview(t *testing.T) {
	t.Parallel()
	text := cli(t, nil, "help").out
	for _, cmd := range append(commands(), families...) {
		if strings.Contains(cmd.path, " ") {
			continue
		}
		row := "\n  " + strings.TrimSpace(cmd.path+" "+cmd.args)
		row += strings.Repeat(" ", column+1-len(row)) + cmd.short + "\n"
		if strings.Count(text, row) != 1 {
			t.Errorf("the overview does not have once: %q", row)
		}
	}
	for _, group := range groups {
		if !strings.Contains(text, "\n"+group.Title+":\n\n  ") {
			t.Errorf("no commands below %q", group.Title)
		}
	}
	if strings.Contains(text, "  dead list") {
		t.Error("the overview has the commands of a family, which its own help has")
	}
	if dead := cli(t, nil, "help", "dead").out; !strings.Contains(dead, "\n  dead replay KEY... ") {
		t.Errorf("help dead has no dead replay:\n%s", dead)
	}
}
