package api

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/admin"
	"github.com/countmill/countmill/client"
	"github.com/countmill/countmill/internal/auth"
	"github.com/countmill/countmill/store"
)

// An indexRequest is an index to create.
type indexRequest struct {
	Name text `json:"name" schema:"IndexName"`
	// Names counters: text, variables in braces, and perhaps a `*` at the end for any rest.
	Match text `json:"match" schema:"like page:{site}:*"`
	// The group's name without its `=`: text and variables of `match`.
	Group text `json:"group" schema:"like site:{site}"`
}

func indexOf(caller auth.Caller, s *admin.IndexState) client.Index {
	shown := client.Index{
		Name: s.Name, Match: s.Match, Group: s.Index.Group, State: s.State,
		Since: s.Since, ServingAt: orNull(s.Serving), CheckedAt: orNull(s.Checked), EndedAt: orNull(s.Ended),
	}
	if caller.May(s.Prefix()) {
		shown.Ranges, shown.RangesDone, shown.ShardsRead, shown.Corrected = &s.Ranges, &s.Done, &s.Shards, &s.Corrected
	}
	return shown
}

// maySee reports whether the caller may read all counters or all groups of the index. For any other caller the index does not
// exist.
func maySee(caller auth.Caller, x *store.Index) bool {
	return caller.May(x.Prefix()) || caller.May(x.GroupPrefix())
}

// indexes lists the indexes that the caller may see.
func (a *API) indexes(c call) (any, error) {
	states, version, err := a.services.Admin.Indexes(c.ctx)
	if err != nil {
		return nil, err
	}
	shown := client.Indexes{Version: version, Indexes: []client.Index{}}
	for i := range states {
		if maySee(c.caller(), &states[i].Index) {
			shown.Indexes = append(shown.Indexes, indexOf(c.caller(), &states[i]))
		}
	}
	return shown, nil
}

func (a *API) createIndex(c call) (any, error) {
	request := c.body.(*indexRequest)
	name, match, group := request.Name.value, request.Match.value, request.Group.value
	x, err := store.ParseIndex(name, match, group)
	if err != nil {
		return nil, err
	}
	if err := mayChange(c.caller(), &x); err != nil {
		return nil, err
	}
	var own []string
	if c.caller().Limited() {
		if own, err = c.caller().Ranges("match", ""); err != nil {
			return nil, err
		}
	}
	if err := a.services.Admin.CreateIndex(c.ctx, name, match, group, own...); err != nil {
		return nil, err
	}
	return a.changedIndexes(c)
}

// changedIndexes answers a change that was made, even if the indexes cannot be read.
func (a *API) changedIndexes(c call) (any, error) {
	shown, err := a.indexes(c)
	if err != nil {
		err = fmt.Errorf("%w: %v", countmill.ErrOutcomeUnknown, err) // not %w: it says that nothing was done
	}
	return shown, err
}

func (a *API) deleteIndex(c call) (any, error) {
	name := c.params.Get("name")
	if name == "" {
		return nil, &countmill.FieldError{Field: "name", Problem: "is missing", Limit: "the name of an index"}
	}
	x, err := a.services.Admin.Index(c.ctx, name)
	if err == nil && !maySee(c.caller(), &x.Index) {
		err = fmt.Errorf("%w: %q", store.ErrNoIndex, name)
	}
	if err != nil {
		return nil, err
	}
	if err := mayChange(c.caller(), &x.Index); err != nil {
		return nil, err
	}
	if err := a.services.Admin.DeleteIndex(c.ctx, name); err != nil {
		return nil, err
	}
	return a.changedIndexes(c)
}

// mayChange returns nil if the caller may use all counters and all groups of the index: its groups show
// what its counters count.
func mayChange(caller auth.Caller, x *store.Index) error {
	return cmp.Or(checkField(caller, "match", x.Prefix()), checkField(caller, "group", x.GroupPrefix()))
}

// checkField is caller.Check. Its error names the field that has the name.
func checkField(caller auth.Caller, field, name string) error {
	err := caller.Check(name)
	if outside, ok := errors.AsType[*auth.OutsideError](err); ok {
		outside.Field = field
	}
	return err
}

// namesOf are counters, and then those of groups, which a field of the request has without their first character.
func namesOf(counters []string, field string, groups []string) ([]string, error) {
	names := slices.Clip(counters)
	for _, g := range groups {
		if err := checkGroup(field, g); err != nil {
			return nil, err
		}
		names = append(names, countmill.GroupMark+g)
	}
	return names, nil
}

// checkGroup reports whether a request can name a group so, without its first character. The reader checks the rest.
func checkGroup(field, group string) error {
	switch {
	case group == "":
		return &countmill.FieldError{Field: field, Problem: "is empty", Limit: "1 to 499 bytes"}
	case countmill.IsGroup(group):
		return &countmill.FieldError{Field: field, Problem: "begins with " + countmill.GroupMark, Limit: "the name of a group without its " + countmill.GroupMark}
	}
	return nil
}
