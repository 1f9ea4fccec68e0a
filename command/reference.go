package command

import (
	"fmt"
	"slices"
	"strings"
)

// reference is docs/reference/flags.md.
func reference() string {
	var b strings.Builder
	b.WriteString(`# Flags

Every flag of every command. A test writes this page from the table that the commands read
(` + "`COUNTMILL_WRITE_REFERENCE=1 go test ./command -run TestReference`" + `): change it there.

A flag wins over its variable, the variable over the default. An empty variable counts as unset. Durations
are written as 250ms, 2h, 8d or 1d12h, sizes as 65536 or 64MiB. ` + "`" + `countmill help COMMAND` + "`" + ` shows the flags of a
command, ` + "`" + `countmill config` + "`" + ` the settings in force. [Contributing](../../CONTRIBUTING.md#change-a-default) says where defaults are.
`)
	for _, s := range table() {
		fmt.Fprintf(&b, "\n## %s\n\n", s.title)
		if s.intro != "" {
			b.WriteString(s.intro + "\n\n")
		}
		b.WriteString("| Flag | Variable | Default | Commands | Meaning |\n|---|---|---|---|---|\n")
		for _, f := range s.inOrder() {
			fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", strings.TrimSpace("--"+f.name+" "+f.arg), coded(f.variable()), f.referenceDefault(), commandsOf(f), cell(f.help))
		}
	}
	return b.String()
}

// inOrder is the rows of a section as the commands have them, those of one name together.
func (s section) inOrder() []flag {
	var rows []flag
	seen := make(map[int]bool)
	for _, cmd := range commands() {
		for i, f := range s.flags {
			if seen[i] || !slices.Contains(f.of, cmd.path) {
				continue
			}
			seen[i] = true
			at := len(rows)
			for at > 0 && rows[at-1].name != f.name {
				at--
			}
			if at == 0 {
				at = len(rows)
			}
			rows = slices.Insert(rows, at, f)
		}
	}
	return rows
}

func coded(text string) string {
	if text == "" {
		return ""
	}
	return "`" + text + "`"
}

// cell is text as a cell of a table shows it.
func cell(text string) string {
	return strings.NewReplacer("|", `\|`, "*", `\*`, "<", "&lt;").Replace(text)
}

// referenceDefault is the default as code if it can be typed.
func (f flag) referenceDefault() string {
	switch def := f.shownDefault(); {
	case f.def != "":
		return cell(f.def)
	case def == "" && f.arg == "":
		return "`false`"
	default:
		return coded(def)
	}
}

// commandsOf is the commands of a flag, in the order of the help.
func commandsOf(f flag) string {
	var of []string
	for _, cmd := range commands() {
		if slices.Contains(f.of, cmd.path) {
			of = append(of, cmd.path)
		}
	}
	return strings.Join(of, ", ")
}
