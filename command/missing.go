package command

import (
	"encoding/json"
	"fmt"
	"strings"
)

// sayMissing says on standard error which counters of an answer with totals do not exist: 0 alone
// does not show a mistyped name.
func (c call) sayMissing(answer []byte) {
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
func (c call) sayMissingOne(name string, exists *bool) {
	if exists == nil || *exists {
		return
	}
	text := "no counter is named " + fmt.Sprintf("%q", plain(name))
	if names := listed(name); len(names) > 1 {
		how := "run the command once for each"
		if c.path == "get" {
			how = "put spaces between them: countmill get " + strings.Join(names, " ")
		}
		text += "; the name looks like a list of names: " + how
	}
	fmt.Fprintf(c.stderr, "countmill: %s\n", text)
}

// listed is the names in a list with commas, as a shell takes them.
func listed(text string) []string {
	var names []string
	for name := range strings.SplitSeq(text, ",") {
		name = plain(strings.TrimSpace(name))
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
