package command

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/command/cli"
)

// sayMissing says on standard error which counters of an answer with totals do not exist: 0 alone
// does not show a mistyped name.
func (c *call) sayMissing(answer []byte) {
	var got struct {
		Totals []struct {
			Counter string `json:"counter"`
			Exists  *bool  `json:"exists"`
		} `json:"totals"`
	}
	_ = json.Unmarshal(answer, &got) // its other reader reports an error
	for _, t := range got.Totals {
		c.sayMissingOne(t.Counter, t.Exists)
	}
}

// sayMissingOne says that no counter is named so, unless it exists or the server does not say.
func (c *call) sayMissingOne(name string, exists *bool) {
	if exists == nil || *exists {
		return
	}
	fmt.Fprintf(c.stderr, "countmill: %s\n", c.missing(name))
}

// missing says that nothing is named so, and what else the name may be meant to be.
func (c *call) missing(name string) string {
	if group, is := strings.CutPrefix(name, countmill.GroupMark); is {
		return fmt.Sprintf("no counter is in a group named %q; \"countmill index list\" shows how groups are named", cli.Plain(group))
	}
	text := fmt.Sprintf("no counter is named %q", cli.Plain(name))
	names, prefix := listed(name), strings.TrimSuffix(name, "*")
	switch {
	case len(names) > 1 && c.Path == "get":
		return text + "; the name looks like a list of names: put spaces between them: countmill get " + strings.Join(names, " ")
	case len(names) > 1:
		return text + "; the name looks like a list of names: run the command once for each"
	case len(names) == 1 && (prefix != name || strings.HasSuffix(name, ":")):
		return text + "; to see all that begin so: countmill ls " + strings.Join(listed(prefix), "")
	}
	return text
}

// listed is the names in a list with commas, as a shell takes them.
func listed(text string) []string {
	var names []string
	for name := range strings.SplitSeq(text, ",") {
		name = cli.Plain(strings.TrimSpace(name))
		if name == "" {
			continue
		}
		if strings.ContainsAny(name, " '\"$&|;<>()*?[]#~`\\!{}") {
			name = "'" + strings.ReplaceAll(name, "'", `'\''`) + "'"
		}
		names = append(names, name)
	}
	return names
}
