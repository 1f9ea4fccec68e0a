package deploy_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const googlePage = "../docs/howto/google-cloud.md"

// A shellCommand is a command of the page: its words before the flags, and its flags.
type shellCommand struct {
	words []string
	flags map[string]string
}

type shellCommands []shellCommand

var (
	shellLoop       = regexp.MustCompile(`(?s)for role in ([a-z ]+); do\n(.*?)\ndone`)
	shellAssignment = regexp.MustCompile(`^([A-Z]+)=(.*)$`)
	shellProject    = regexp.MustCompile(`\$\(gcloud projects describe [^@]*\)`)
	shellBlock      = regexp.MustCompile("(?ms)^```text\n(.*?)^```")
)

// onPage returns the commands of docs/howto/google-cloud.md, with loops unrolled and variables replaced.
func onPage(t *testing.T) shellCommands {
	t.Helper()
	page, err := os.ReadFile(googlePage)
	if err != nil {
		t.Fatal(err)
	}
	var all shellCommands
	variables := map[string]string{"PROJECT": "my-project"}
	for _, block := range shellBlock.FindAllStringSubmatch(string(page), -1) {
		text := shellProject.ReplaceAllLiteralString(strings.ReplaceAll(block[1], "\\\n", " "), projectNumber)
		text = shellLoop.ReplaceAllStringFunc(text, unrolled)
		for line := range strings.Lines(text) {
			line = strings.TrimSpace(line)
			if m := shellAssignment.FindStringSubmatch(line); m != nil {
				variables[m[1]] = os.Expand(m[2], func(name string) string { return variables[name] })
				continue
			}
			if strings.HasPrefix(line, "gcloud ") || strings.HasPrefix(line, "countmill ") {
				all = append(all, parseShell(os.Expand(line, func(name string) string { return variables[name] })))
			}
		}
	}
	if len(all) < 10 {
		t.Fatalf("found %d commands in %s", len(all), googlePage)
	}
	return all
}

func unrolled(loop string) string {
	m := shellLoop.FindStringSubmatch(loop)
	var lines []string
	for _, role := range strings.Fields(m[1]) {
		lines = append(lines, strings.ReplaceAll(m[2], "$role", role))
	}
	return strings.Join(lines, "\n")
}

// parseShell splits a command. A flag without a value is "true"; those of countmill have theirs as the next word.
func parseShell(line string) shellCommand {
	c := shellCommand{flags: map[string]string{}}
	words := strings.Fields(line)
	for i := 0; i < len(words); i++ {
		flag, isFlag := strings.CutPrefix(words[i], "--")
		name, value, given := strings.Cut(flag, "=")
		switch {
		case !isFlag:
			c.words = append(c.words, words[i])
		case given:
			c.flags[name] = value
		case words[0] == "countmill" && i+1 < len(words):
			i++
			c.flags[name] = strings.Trim(words[i], "'")
		default:
			c.flags[name] = "true"
		}
	}
	return c
}

// documented returns a flag of the command that starts a role, or "".
func documented(t *testing.T, commands shellCommands, role, flag string) string {
	t.Helper()
	for _, c := range commands {
		if strings.Join(c.words, " ") == "countmill "+commandOf(role) {
			return strings.ReplaceAll(c.flags[flag], "PROJECT", "my-project")
		}
	}
	t.Fatalf("%s does not start a %s", googlePage, role)
	return ""
}

// granted returns the roles that commands grant, each with its place and its member.
func (all shellCommands) granted(t *testing.T) []string {
	t.Helper()
	var found []string
	for _, c := range all {
		i := slices.Index(c.words, "add-iam-policy-binding")
		if i < 0 {
			continue
		}
		place := strings.TrimSuffix(c.words[i-1], "s") + " " + c.words[i+1]
		found = append(found, place+" "+c.flags["member"]+" "+c.flags["role"])
	}
	slices.Sort(found)
	return found
}

// granted returns the roles that a plan grants. Every account may also read the file of tokens, which the
// page has in words.
func granted(p plan) []string {
	var all []string
	for address, nodes := range p {
		for _, n := range nodes {
			member, role := n.text("member"), n.text("role")
			if role == "" || role == "roles/secretmanager.secretAccessor" && n.text("secret_id") == "countmill-tokens" {
				continue
			}
			place := address
			for _, kind := range []string{"topic", "subscription", "project"} {
				if name := n.text(kind); name != "" {
					place = kind + " " + name
				}
			}
			all = append(all, place+" "+member+" "+role)
		}
	}
	slices.Sort(all)
	return all
}
