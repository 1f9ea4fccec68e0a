package command

import (
	"context"
	"net/http"

	"github.com/countmill/countmill/client"
	"github.com/countmill/countmill/command/cli"
	"github.com/countmill/countmill/store"
)

// addIndexSeries adds the rules of --series for an index that is to be created. They come before the index, so
// that a mistake leaves nothing behind that counts without them.
func (c *indexCreateVerb) addIndexSeries(ctx context.Context, name string) error {
	if !c.Given("series") {
		return nil
	}
	keep, err := store.ParseRetention(c.series)
	if err != nil {
		return cli.Usagef("--series %q: %s", c.series, err)
	}
	x, err := store.ParseIndex(name, c.match, c.group)
	if err != nil {
		return cli.Usagef("%s", err)
	}
	patterns := []string{x.Prefix() + "*", x.GroupPrefix() + "*"}
	if err := c.checkRules(ctx, patterns, keep.String()); err != nil {
		return err
	}
	for _, pattern := range patterns {
		if _, err := c.ask(ctx, addRule("series", pattern, keep.String())); err != nil {
			return err
		}
	}
	return nil
}

// checkRules refuses to change a rule: another index may need its longer times.
func (c *indexCreateVerb) checkRules(ctx context.Context, patterns []string, keep string) error {
	answer, err := c.ask(ctx, client.Request{Path: "/v1/rules"})
	if err != nil {
		return err
	}
	rules, err := readRules(answer)
	if err != nil {
		return err
	}
	for _, pattern := range patterns {
		for _, r := range rules.Series {
			if r.Pattern == pattern && r.Ended == "" && r.Keep != keep {
				return cli.Usagef("--series: the rule for %q keeps %s; give that, or change it with countmill rule add series '%s=%s'", pattern, r.Keep, pattern, keep)
			}
		}
	}
	return nil
}

// addRule is the request that adds a rule. It may be repeated.
func addRule(kind, pattern, keep string) client.Request {
	return client.Request{Method: http.MethodPost, Path: "/v1/rules/" + kind, Body: body(map[string]any{"pattern": pattern, "keep": keep}), Safe: true}
}
