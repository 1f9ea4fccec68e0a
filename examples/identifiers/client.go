package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/countmill/countmill/client"
)

// A remote is a running countmill.
type remote struct {
	*client.Client
	base string
}

func newRemote(base string, options ...client.Option) (*remote, error) {
	c, err := client.New(base, options...)
	return &remote{c, base}, err
}

// totals lists every counter under prefix.
func (r *remote) totals(ctx context.Context, prefix string) (map[string]int64, error) {
	totals := make(map[string]int64)
	for t, err := range r.List(ctx, prefix) {
		if err != nil {
			return nil, err
		}
		if _, ok := totals[t.Counter]; ok {
			return nil, fmt.Errorf("counter %s is listed twice", t.Counter)
		}
		totals[t.Counter] = t.Total
	}
	return totals, nil
}

// mustBeEmpty refuses a server that has counters under prefix: their totals would look like a
// difference.
func (r *remote) mustBeEmpty(ctx context.Context, prefix string) error {
	for _, err := range r.List(ctx, prefix) {
		if err != nil {
			return err
		}
		return fmt.Errorf("there are counters under %q already: choose another --prefix", prefix)
	}
	return nil
}

// metrics reads /metrics and sums each of the named metrics over its labels.
func (r *remote) metrics(ctx context.Context, names []string) (map[string]float64, error) {
	text, err := r.Do(ctx, client.Request{Path: "/metrics"})
	if err != nil {
		return nil, err
	}
	sums := make(map[string]float64)
	lines := bufio.NewScanner(bytes.NewReader(text))
	for lines.Scan() {
		series, value, _ := strings.Cut(lines.Text(), " ")
		if strings.HasPrefix(series, "#") {
			continue
		}
		if i := strings.LastIndexByte(lines.Text(), '}'); i >= 0 {
			series, value = lines.Text()[:i], strings.TrimSpace(lines.Text()[i+1:])
		}
		name, _, _ := strings.Cut(series, "{")
		if !slices.Contains(names, name) {
			continue
		}
		v, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return nil, fmt.Errorf("metric %s: %w", name, err)
		}
		sums[name] += v
	}
	return sums, lines.Err()
}
