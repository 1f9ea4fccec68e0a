package command

import (
	"strings"
	"testing"
	"unicode/utf8"
)

// The overview has each command once, in its group, and short texts begin in one column.
func TestOverview(t *testing.T) {
	t.Parallel()
	text := try(t, nil, "help").out
	for _, cmd := range append(program().Commands, program().Families...) {
		if strings.Contains(cmd.Path, " ") {
			continue
		}
		row := "\n  " + strings.TrimSpace(cmd.Path+" "+cmd.Args)
		row += strings.Repeat(" ", 39-len(row)) + cmd.Short + "\n"
		if strings.Count(text, row) != 1 {
			t.Errorf("the overview does not have once: %q", row)
		}
	}
	for _, group := range program().Groups {
		if !strings.Contains(text, "\n"+group.Title+":\n\n  ") {
			t.Errorf("no commands below %q", group.Title)
		}
	}
	if strings.Contains(text, "  dead list") {
		t.Error("the overview has the commands of a family, which its own help has")
	}
	if dead := try(t, nil, "help", "dead").out; !strings.Contains(dead, "\n  dead replay KEY... ") {
		t.Errorf("help dead has no dead replay:\n%s", dead)
	}
}

// Help fits a terminal that is not narrow, and its columns are apart.
func TestHelpFits(t *testing.T) {
	t.Parallel()
	const widest = 112
	for _, cmd := range append(program().Commands, program().Families...) {
		for line := range strings.Lines(try(t, nil, append([]string{"help"}, strings.Fields(cmd.Path)...)...).out) {
			if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > widest {
				t.Errorf("help %s has a line of %d characters, want at most %d: %s", cmd.Path, n, widest, line)
			}
		}
	}
	if rule := try(t, nil, "help", "rule").out; !strings.Contains(rule, "PATTERN=KEEP\n"+strings.Repeat(" ", 38)+"add a rule") {
		t.Errorf("help rule:\n%s", rule)
	}
}
