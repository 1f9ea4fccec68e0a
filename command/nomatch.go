package command

import (
	"fmt"
	"strings"
)

// Names may have a *, so a command that takes a PREFIX takes a * as it is. It then finds nothing where a pattern was meant, which
// looks like a good result. So each of these commands reports that nothing matched.

// noMatch says that no name begins with the prefix.
func noMatch(prefix string) string {
	if prefix == "" {
		return "there are no counters"
	}
	return fmt.Sprintf("no name begins with %q%s", prefix, withoutStar(prefix))
}

// withoutStar ends an error about a prefix that looks like a pattern.
func withoutStar(prefix string) string {
	if rest, ok := strings.CutSuffix(prefix, "*"); ok {
		return fmt.Sprintf("; a PREFIX has no * behind it: write %q", rest)
	}
	return ""
}

// warnNoMatch warns that a prefix has matched nothing. Without a prefix that is no mistake.
func (c *call) warnNoMatch(prefix string) {
	if prefix == "" {
		return
	}
	names := "no name"
	if c.Given("token") || c.Given("token-file") { // the server shows no others
		names += " that this token may read"
	}
	fmt.Fprintf(c.stderr, "countmill: %s begins with %q%s\n", names, prefix, withoutStar(prefix))
}

// warnStars warns of prefixes that look like patterns, for commands that match them later.
func (c *call) warnStars(prefixes ...string) {
	for _, p := range prefixes {
		if rest, ok := strings.CutSuffix(p, "*"); ok {
			fmt.Fprintf(c.stderr, "countmill: the prefix %q is of names that have this *; for all that begin with %q leave the * out\n", p, rest)
		}
	}
}

// warnInnerStar warns of a pattern with a * that is not at its end: it is a character of names.
func (c *call) warnInnerStar(pattern string) {
	if strings.Contains(strings.TrimSuffix(pattern, "*"), "*") {
		fmt.Fprintf(c.stderr, "countmill: %q is of names that have this *: only a * at the end of a pattern means any characters\n", pattern)
	}
}
