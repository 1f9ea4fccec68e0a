package deploy_test

import (
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
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
	concurrencyMode = regexp.MustCompile(`concurrency mode ([A-Z_]+)\.`)
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

// arguments are the arguments of Terraform's resources that gcloud's flags set.
var arguments = map[string]string{
	"ack-deadline":               "ack_deadline_seconds",
	"collection-group":           "collection",
	"database":                   "database",
	"dead-letter-topic":          "dead_letter_policy.dead_letter_topic",
	"delete-protection":          "delete_protection_state",
	"expiration-period":          "expiration_policy.ttl",
	"location":                   "location_id",
	"max-delivery-attempts":      "dead_letter_policy.max_delivery_attempts",
	"max-retry-delay":            "retry_policy.maximum_backoff",
	"message-retention-duration": "message_retention_duration",
	"min-retry-delay":            "retry_policy.minimum_backoff",
	"topic":                      "topic",
	"type":                       "type",
}

// described returns the commands that begin with some words, as lists of Terraform's arguments.
func (all shellCommands) described(t *testing.T, beginning string) []string {
	t.Helper()
	var found []string
	for _, c := range all {
		if !strings.HasPrefix(strings.Join(c.words, " ")+" ", beginning+" ") {
			continue
		}
		arguments := c.arguments(t)
		switch rest := c.words[len(strings.Fields(beginning)):]; {
		case beginning == "gcloud firestore databases create":
			arguments["name"] = arguments["database"]
			arguments["concurrency_mode"] = onlyMode(t)
			delete(arguments, "database")
		case strings.Contains(beginning, "ttls"):
			arguments["field"] = rest[0]
		default:
			arguments["name"] = rest[0]
		}
		found = append(found, list(arguments))
	}
	slices.Sort(found)
	return found
}

// arguments translates the flags of a command.
func (c shellCommand) arguments(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for flag, value := range c.flags {
		switch flag {
		case "project", "enable-ttl":
			continue
		case "type":
			value = strings.ToUpper(strings.ReplaceAll(value, "-", "_"))
		case "delete-protection":
			value = "DELETE_PROTECTION_ENABLED"
		case "expiration-period":
			value = strings.TrimPrefix(value, "never")
		case "message-retention-duration":
			days, err := strconv.Atoi(strings.TrimSuffix(value, "d"))
			if err != nil {
				t.Fatalf("--%s=%s is not in days", flag, value)
			}
			value = fmt.Sprintf("%ds", days*int(24*time.Hour/time.Second))
		}
		name := arguments[flag]
		if name == "" {
			t.Fatalf("%s has --%s: this test does not know its argument in Terraform", googlePage, flag)
		}
		all[name] = value
	}
	return all
}

// onlyMode returns the concurrency mode that the page demands.
func onlyMode(t *testing.T) string {
	t.Helper()
	page, err := os.ReadFile(googlePage)
	if err != nil {
		t.Fatal(err)
	}
	m := concurrencyMode.FindStringSubmatch(string(page))
	if m == nil {
		t.Fatalf("%s names no concurrency mode", googlePage)
	}
	return m[1]
}

// described returns resources as lists of their arguments, without some names and without false values.
func described(nodes []node, without ...string) []string {
	var all []string
	for _, n := range nodes {
		arguments := n.flat()
		maps.DeleteFunc(arguments, func(name, value string) bool { return value == "false" || slices.Contains(without, name) })
		all = append(all, list(arguments))
	}
	slices.Sort(all)
	return all
}

func list(arguments map[string]string) string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(arguments)) {
		all = append(all, name+"="+arguments[name])
	}
	return strings.Join(all, " ")
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
