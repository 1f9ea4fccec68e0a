package admin

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/int128"
)

// WrongGroup is the Kind of a group whose total is not the sum of its counters.
const WrongGroup = "group"

// GroupReads has the calls by which a Verifier compares groups with their counters.
type GroupReads interface {
	store.Reads
	Check(ctx context.Context) (store.Checked, error)
}

// CompareGroups makes the Verifier compare groups too. Call it before the first page.
//
// All counters and groups of an index are read in one view, and so at one moment: while increments come
// in, a sum of several moments would differ from every total. So an index is one page, however many
// counters it has.
func (v *Verifier) CompareGroups(reads GroupReads) *Verifier {
	v.groups = reads
	return v
}

// mostGroups bounds the memory of a page of groups.
const mostGroups = 1_000_000

// groupPage compares the groups of the first index that serves after the named one.
func (v *Verifier) groupPage(ctx context.Context, prefix, after string) (r VerifyResult, err error) {
	checked, err := v.groups.Check(ctx)
	if err != nil {
		return r, unavailable("reading the rules", err)
	}
	x := nextIndex(checked.Settings.Rules, prefix, after)
	if x == nil {
		return r, nil
	}
	c := &groupCheck{view: v.groups.View(), index: x, prefix: prefix, most: mostGroups, sums: make(map[string]*groupSum)}
	defer c.view.Close()
	if err := c.read(ctx); err != nil {
		return r, err
	}
	r = c.result()
	r.Next = ofGroups + x.Name
	// Since an index ends no fold adds to its groups.
	if checked, err = v.groups.Check(ctx); err != nil {
		return VerifyResult{}, unavailable("reading the rules", err)
	}
	if now := checked.Settings.Rules.Index(x.Name); now == nil || now.Number != x.Number || !now.InForce() {
		r.Problems, r.Groups = nil, 0
	}
	return r, nil
}

// nextIndex returns the first serving index after the named index that may have groups with the prefix.
func nextIndex(rules *store.Rules, prefix, after string) *store.Index {
	if rules == nil {
		return nil
	}
	for i := range rules.Indexes {
		x := &rules.Indexes[i]
		groups := x.GroupPrefix()
		related := strings.HasPrefix(groups, prefix) || strings.HasPrefix(prefix, groups) || strings.HasPrefix(x.Overflow(), prefix)
		if x.Name > after && related && x.InForce() && !x.Serving.IsZero() {
			return x
		}
	}
	return nil
}

// A groupCheck is the comparison of the groups of one index.
type groupCheck struct {
	view   store.View
	index  *store.Index
	prefix string
	most   int // groups
	sums   map[string]*groupSum
}

// A groupSum is the total of a group and that of its counters.
type groupSum struct{ total, counted int128.Int }

func (c *groupCheck) read(ctx context.Context) error {
	err := c.each(ctx, c.index.Prefix(), func(counter string, sum int128.Int) {
		if group, ok := c.index.GroupOf(counter); ok && strings.HasPrefix(group, c.prefix) {
			s := c.of(group)
			s.counted = s.counted.Add(sum)
		}
	})
	for _, prefix := range c.index.GroupPrefixes() {
		if err != nil {
			return err
		}
		err = c.each(ctx, prefix, func(group string, sum int128.Int) {
			if c.index.HasGroup(group) && strings.HasPrefix(group, c.prefix) {
				s := c.of(group)
				s.total = s.total.Add(sum)
			}
		})
	}
	return err
}

func (c *groupCheck) of(group string) *groupSum {
	s := c.sums[group]
	if s == nil {
		s = new(groupSum)
		c.sums[group] = s
	}
	return s
}

// each visits the counters with a prefix, each shard and the remainder of a group apart.
func (c *groupCheck) each(ctx context.Context, prefix string, visit func(counter string, sum int128.Int)) error {
	for after := ""; ; {
		records, err := c.view.List(ctx, prefix, after, store.MaxSurveyPage)
		if err != nil {
			return unavailable("listing counters", err)
		}
		var keys []store.Key
		for i := range records {
			rec := &records[i]
			visit(rec.Counter, rec.Remainder)
			for n := range rec.Shards {
				keys = append(keys, store.Key{Counter: rec.Counter, Shard: n})
			}
		}
		if err := c.lookup(ctx, keys, visit); err != nil {
			return err
		}
		if len(c.sums) > c.most {
			return &countmill.FieldError{Field: "prefix", Problem: "has too many groups of index " + c.index.Name, Limit: fmt.Sprintf("%d groups", c.most)}
		}
		if len(records) < store.MaxSurveyPage {
			return nil
		}
		after = records[len(records)-1].Counter
	}
}

func (c *groupCheck) lookup(ctx context.Context, keys []store.Key, visit func(counter string, sum int128.Int)) error {
	for asked := range slices.Chunk(keys, store.LookupKeys) {
		values, err := c.view.Lookup(ctx, asked)
		if err != nil {
			return unavailable("reading shards", err)
		}
		for i, v := range values {
			visit(asked[i].Counter, v.Count)
		}
	}
	return nil
}

func (c *groupCheck) result() VerifyResult {
	r := VerifyResult{At: c.view.ReadTime()}
	for _, group := range slices.Sorted(maps.Keys(c.sums)) {
		s := c.sums[group]
		if r.Groups++; s.total == s.counted {
			continue
		}
		r.Problems = append(r.Problems, Problem{
			Kind: WrongGroup, Counter: group, Shard: -1,
			Detail: fmt.Sprintf("is %d as of %s, when its counters had %d", s.total, formatTime(r.At), s.counted),
		})
	}
	return r
}

func formatTime(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000000Z") }
