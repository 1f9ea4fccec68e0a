package cli

import (
	"fmt"
	"slices"
	"strings"
)

// A Section of the reference has flags that belong together.
type Section struct {
	Title, Intro string
	Of           []string // the commands whose own flags are here
}

// A row is the same flag of some commands.
type row struct {
	name, text, help string
	of               []string // the commands, in the order of the help
}

// Reference is a page of all flags.
func (p *Program) Reference() string {
	var b strings.Builder
	b.WriteString(p.Preface)
	for _, s := range p.Sections {
		fmt.Fprintf(&b, "\n## %s\n\n", s.Title)
		if s.Intro != "" {
			b.WriteString(s.Intro + "\n\n")
		}
		b.WriteString("| Flag | Variable | Default | Commands | Meaning |\n|---|---|---|---|---|\n")
		like := make(map[string]string) // the first flag of a list of commands
		for _, r := range p.rows(s) {
			of := strings.Join(r.of, ", ")
			if name := like[of]; name != "" && len(r.of) > 6 {
				of = "as `--" + name + "`"
			} else {
				like[of] = r.name
			}
			fmt.Fprintf(&b, "%s | %s | %s |\n", r.text, of, r.help)
		}
	}
	return b.String()
}

// rows are in the order of the commands, those of one name together.
func (p *Program) rows(s Section) (rows []row) {
	for _, cmd := range p.Commands {
		for _, f := range cmd.New().Flags() {
			if f.section != s.Title && (f.section != "" || !slices.Contains(s.Of, cmd.Path)) {
				continue
			}
			text := fmt.Sprintf("| `%s` | %s | %s", strings.TrimSpace("--"+f.Name+" "+f.Arg), coded(f.variable(p.Env)), f.referenceDefault())
			at := slices.IndexFunc(rows, func(r row) bool { return r.text == text && r.help == cell(f.Help) })
			if at < 0 {
				at = len(rows)
				for i, r := range rows {
					if r.name == f.Name {
						at = i + 1
					}
				}
				rows = slices.Insert(rows, at, row{name: f.Name, text: text, help: cell(f.Help)})
			}
			rows[at].of = append(rows[at].of, cmd.Path)
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
func (f Flag) referenceDefault() string {
	switch def := f.shownDefault(); {
	case f.words != "":
		return cell(f.words)
	case def == "" && f.Arg == "":
		return "`false`"
	default:
		return coded(def)
	}
}
