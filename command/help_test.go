package command

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/cobra"
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

// Help fits a terminal that is not narrow, and its columns are apart.
func TestHelpFits(t *testing.T) {
	t.Parallel()
	const widest = 112
	walk(newRoot(call{}), func(cmd *cobra.Command) {
		text := help(cmd)
		for line := range strings.Lines(text) {
			if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > widest {
				t.Errorf("help %s has a line of %d characters, want at most %d: %s", path(cmd), n, widest, line)
			}
		}
		for _, sub := range cmd.Commands() {
			if path(sub) != "" && strings.Contains(text, usage(sub)+sub.Short) {
				t.Errorf("help %s has no space after %s", path(cmd), usage(sub))
			}
		}
	})
	if rule := cli(t, nil, "help", "rule").out; !strings.Contains(rule, "PATTERN=KEEP\n"+strings.Repeat(" ", column)+"add a rule") {
		t.Errorf("help rule:\n%s", rule)
	}
}
