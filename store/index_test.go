package store

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/countmill/countmill"
)

func TestGroupOf(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 490)
	for _, tt := range []struct{ match, group, counter, want string }{
		{"page:{site}:*", "site:{site}", "page:s1:/a", "=site:s1"},
		{"page:{site}:*", "site:{site}", "page:s1:", "=site:s1"},
		{"page:{site}:*", "site:{site}", "page:s1:/a:b", "=site:s1"},
		{"page:{site}:*", "site:{site}", "page::/a", ""},
		{"page:{site}:*", "site:{site}", "page::x:", "=site::x"}, // a variable has at least a byte
		{"page:{site}:*", "site:{site}", "page:s1", ""},
		{"page:{site}:*", "site:{site}", "pages:s1:/a", ""},
		{"page:{site}:{country}:*", "{country}-{site}", "page:s1:de:/a", "=de-s1"},
		{"{a}", "all of {a}", "x y", "=all of x y"},
		{"{a}.{b}", "{b}", "é.ü", "=ü"},
		{"*", "all", "anything", "=all"},
		{"*", "all", "=all", ""}, // no group is in a group
		{"{a}", "{a}", "=x", ""},
		{"a", "one", "a", "=one"},
		{"a", "one", "ab", ""},
		{"{a}", "long:{a}", long, "=long:" + long},
		{"{a}", "longer:of:{a}", long, "=overflow:x"},
		{"{a}:{b}", "{a}", "end :1", "=overflow:x"},
		{"{a}:{b}", "{a}:{b}", "overflow:y", "=overflow:x"},
	} {
		x, err := ParseIndex("x", tt.match, tt.group)
		if err != nil {
			t.Fatalf("%s, %s: %v", tt.match, tt.group, err)
		}
		got, ok := x.GroupOf(tt.counter)
		if ok != (tt.want != "") || ok && got != tt.want {
			t.Errorf("the group of %q by %s, %s is %q (%t), want %q", tt.counter, tt.match, tt.group, got, ok, tt.want)
		}
		if ok && !x.HasGroup(got) {
			t.Errorf("%s, %s has not its group %q", tt.match, tt.group, got)
		}
		begins := func(prefix string) bool { return strings.HasPrefix(got, prefix) }
		if prefixes := x.GroupPrefixes(); ok && len(slices.DeleteFunc(slices.Clone(prefixes), func(p string) bool { return !begins(p) })) != 1 {
			t.Errorf("%s, %s: the group %q begins with not exactly one of %q", tt.match, tt.group, got, prefixes)
		}
		if r := (&Rules{Indexes: []Index{x}}); r.Indexed(tt.counter) != ok {
			t.Errorf("%q is indexed: %t, want %t", tt.counter, !ok, ok)
		}
	}
}

// A group's name is a valid name, with any name of the counter.
func TestGroupsHaveValidNames(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(rand.Uint64(), 0))
	pieces := []string{"a", ":", " ", "é", "page:", "__", "=", "overflow:", strings.Repeat("y", 240), "\u2028"}
	found := 0
	for range 20_000 {
		var b strings.Builder
		for range 1 + rng.IntN(6) {
			b.WriteString(pieces[rng.IntN(len(pieces))])
		}
		if countmill.CheckCounter(b.String()) != nil {
			continue
		}
		for _, p := range [][2]string{{"{a}:*", "{a}"}, {"page:{a}:{b}", "{b} {a}"}, {"{a}", "g:{a}"}, {"a{b}", "__{b}"}} {
			x, err := ParseIndex("x", p[0], p[1])
			if err != nil {
				t.Fatal(err)
			}
			if group, ok := x.GroupOf(b.String()); ok {
				if found++; countmill.CheckName(group) != nil || !countmill.IsGroup(group) || !x.HasGroup(group) {
					t.Errorf("the group of %q by %q is %q", b.String(), p, group)
				}
			}
		}
	}
	if found < 1000 {
		t.Errorf("%d groups", found)
	}
}

// A creator limited to prefixes leaves room for the indexes of others.
func TestOwnIndexes(t *testing.T) {
	t.Parallel()
	s := NewSettings(days, start)
	create := func(n int, counters string, own ...string) error {
		change := stepOf(CreateIndex, Index{Name: fmt.Sprintf("%s-%d", counters, n), Match: fmt.Sprintf("%s:%d:{x}", counters, n), Group: fmt.Sprintf("%s:%d:{x}", counters, n)})
		change.Index.Own = own
		next, err := s.ChangeRules(change, start.Add(time.Minute), time.Hour)
		if err == nil {
			s = next
		}
		return err
	}
	for n := range OwnIndexes {
		if err := create(n, "page", "page:", "post:"); err != nil {
			t.Fatal(err)
		}
	}
	var field *countmill.FieldError
	if err := create(OwnIndexes, "post", "page:", "post:"); !errors.As(err, &field) || !strings.Contains(field.Limit, "25 indexes of them") {
		t.Errorf("one more of them: got %v, want an error with the limit", err)
	}
	if err := create(0, "page", "page:", "post:"); err != nil {
		t.Errorf("one that exists: got %v", err)
	}
	for _, own := range [][]string{{"user:"}, nil} {
		if err := create(len(own), "user", own...); err != nil {
			t.Errorf("an index of a creator of %q: got %v", own, err)
		}
	}
}

// The message names the mistake, and only the limit names the allowed values.
func TestRefusedIndexesSayWhatIsAllowed(t *testing.T) {
	t.Parallel()
	const letters, form = "variables of 1 to 40 of a-z, 0-9, - and _, such as {site}", "text and variables such as {site}, with text between two variables, and * only at the end"
	for _, tt := range []struct{ match, group, field, problem, limit string }{
		{"{S}:*", "a", "match", `has a variable named "S"`, letters},
		{"{Site}:*", "a", "match", `has a variable named "Site"`, letters},
		{"{s i}:*", "a", "match", `has a variable named "s i"`, letters},
		{"{}:*", "a", "match", `has a variable named ""`, letters},
		{"{" + strings.Repeat("s", 41) + "}:*", "a", "match", `has a variable named "` + strings.Repeat("s", 40) + `"`, letters},
		{"{s:*", "a", "match", "has a { without a }", form},
		{"{s}:{s}:*", "a", "match", "has the variable {s} twice", "each variable once"},
		{"{a}:{b}:{c}:{d}:{e}:{f}:{g}:{h}:{i}", "a", "match", "has 9 variables", "8 variables"},
		{strings.Repeat("m", 499), "a", "match", "is too long", "498 bytes"},
		{"a\xff", "a", "match", "is not valid UTF-8", "valid UTF-8"},
		{"a*", "a\x01", "group", "holds a control character", "no control characters"},
		{" {s}", "a", "match", "begins with a space", "no leading space"},
		{"{s}", " q:{s}", "group", "begins with a space", "no leading space"},
		{"{s}", "=g:{s}", "group", "begins with =", "the name without it: countmill puts it before each group"},
		{"a*b", "a", "match", "has a * or } out of place", form},
		{"a}", "a", "match", "has a * or } out of place", form},
		{"{a}", "a*", "group", "has a * or } out of place", "text and variables such as {site}, with text between two variables"},
		{"{a}{b}", "{a}", "match", "has a variable without text after it", form},
		{"{a}*", "{a}", "match", "has a variable without text after it", form},
		{"=a:*", "a", "match", "matches groups", "counters that can be incremented"},
		{"{a}", "{b}", "group", "has the variable {b}", "variables of match"},
		{"{a}", "", "group", "is empty or begins with overflow:", "a name of groups, such as site:{site}"},
		{"{a}", "overflow:{a}", "group", "is empty or begins with overflow:", "a name of groups, such as site:{site}"},
	} {
		_, err := ParseIndex("x", tt.match, tt.group)
		field, ok := errors.AsType[*countmill.FieldError](err)
		if !ok || field.Field != tt.field || field.Problem != tt.problem || field.Limit != tt.limit {
			t.Errorf("%q %q: got %v, want %s %s (limit: %s)", tt.match, tt.group, err, tt.field, tt.problem, tt.limit)
		}
	}
	if _, err := ParseIndex("x", strings.Repeat("m", 498), "a"); err != nil {
		t.Errorf("a match of 498 bytes: %v", err)
	}
}

func stepOf(step IndexStep, x Index) RuleChange {
	return RuleChange{Index: &IndexChange{Step: step, Index: x}}
}

// The life of an index. Since its creation and since its deletion commits must know its Version.
func TestTheStepsOfAnIndex(t *testing.T) {
	t.Parallel()
	s, now := NewSettings(days, start), start
	do := func(step IndexStep, x Index) *Index {
		t.Helper()
		now = now.Add(time.Minute)
		next, err := s.ChangeRules(stepOf(step, x), now, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		s = next
		return s.Rules.Index(x.Name)
	}
	sites := Index{Name: "sites", Match: "page:{site}:*", Group: "site:{site}"}
	x := do(CreateIndex, sites)
	if x.Number != 2 || x.Version != 2 || s.Rules.Oldest() != 2 || !x.Since.Equal(now.Add(time.Hour)) || !x.Serving.IsZero() || !x.InForce() {
		t.Errorf("created: %+v, the oldest commits are of %d", x, s.Rules.Oldest())
	}
	if again := do(CreateIndex, sites); again.Number != 2 || s.Version != 2 {
		t.Errorf("created twice: %+v in version %d", again, s.Version)
	}
	built := Index{Name: "sites", Number: 2, Checked: now.Add(2 * time.Hour)}
	if x = do(ServeIndex, built); x.Serving.IsZero() || !x.Checked.Equal(built.Checked) || s.Rules.Oldest() != 2 {
		t.Errorf("built: %+v, the oldest commits are of %d", x, s.Rules.Oldest())
	}
	serving, version := x.Serving, s.Version
	if x = do(ServeIndex, Index{Name: "sites", Number: 2, Checked: now}); s.Version != version || !x.Serving.Equal(serving) {
		t.Errorf("an older check changed %+v", x)
	}
	if _, err := s.ChangeRules(stepOf(ServeIndex, Index{Name: "sites", Number: 1, Checked: now.Add(9 * time.Hour)}), now, 0); !errors.Is(err, ErrNoIndex) {
		t.Errorf("another index serves: %v", err)
	}
	if _, err := s.ChangeRules(stepOf(RemoveIndex, Index{Name: "sites", Number: 2}), now, 0); !errors.Is(err, ErrNoIndex) {
		t.Errorf("removed while it serves: %v", err)
	}
	x = do(DeleteIndex, Index{Name: "sites"})
	if x.InForce() || x.Version != s.Version || s.Rules.Oldest() != s.Version || !x.Since.Equal(now.Add(time.Hour)) || !s.Rules.Ended(&built) {
		t.Errorf("deleted: %+v, the oldest commits are of %d", x, s.Rules.Oldest())
	}
	if _, err := s.ChangeRules(stepOf(CreateIndex, sites), now, 0); err == nil || !strings.Contains(err.Error(), "name is of an index that is being deleted") {
		t.Errorf("created while it is deleted: %v", err)
	}
	if x = do(ServeIndex, Index{Name: "sites", Number: 2, Checked: now.Add(9 * time.Hour)}); x.Checked.Equal(now.Add(9 * time.Hour)) {
		t.Error("a deleted index was checked")
	}
	if x = do(RemoveIndex, Index{Name: "sites", Number: 2}); x != nil || s.Rules != nil || s.Rules.Ended(&built) {
		t.Errorf("removed: %+v", x)
	}
	if do(RemoveIndex, Index{Name: "sites", Number: 2}) != nil {
		t.Error("removed twice")
	}
	if x = do(CreateIndex, sites); x.Number <= 2 || s.Rules.Ended(&built) {
		t.Errorf("created again: %+v", x)
	}
	if do(RemoveIndex, Index{Name: "sites", Number: 2}) == nil {
		t.Error("a late removal of the first index removed the second")
	}
	if _, err := s.ChangeRules(stepOf(DeleteIndex, Index{Name: "none"}), now, 0); !errors.Is(err, ErrNoIndex) {
		t.Errorf("deleted an index that does not exist: %v", err)
	}
}

// No counter has more than MaxGroups groups, and no two indexes have a group in common.
func TestIndexesDoNotCollide(t *testing.T) {
	t.Parallel()
	create := func(s Settings, name, match, group string) (Settings, error) {
		return s.ChangeRules(stepOf(CreateIndex, Index{Name: name, Match: match, Group: group}), start, 0)
	}
	s, err := create(NewSettings(days, start), "a", "p:{x}", "abc:{x}")
	if err != nil {
		t.Fatal(err)
	}
	for _, group := range []string{"abc:{x}", "abc:{x}:y", "ab{x}", "{x}", "abc:"} {
		if _, err := create(s, "b", "q:{x}", group); err == nil {
			t.Errorf("a second index has groups %s", group)
		}
	}
	for i := range 5 {
		next, err := create(s, fmt.Sprint("n", i), "p:q:r:s:t:"[:2*i]+"{x}", fmt.Sprint("n", i, ":{x}"))
		if (err != nil) != (i > 2) {
			t.Errorf("index %d over the same counters: %v", 2+i, err)
		}
		if err == nil {
			s = next
		}
	}
	if got := s.Rules.IndexOf("=overflow:n1"); got == nil || got.Name != "n1" {
		t.Errorf("the overflow group of n1 is of %+v", got)
	}
	if got := s.Rules.IndexOf("=other"); got != nil {
		t.Errorf("=other is of %+v", got)
	}
}

func TestUnfinishedIndexes(t *testing.T) {
	t.Parallel()
	now := time.Now()
	rules := &Rules{Indexes: []Index{{Name: "serving", Serving: now}, {Name: "building"}, {Name: "deleted", Serving: now, Ended: now}, {Name: "never built", Ended: now}}}
	if got, none := rules.Unfinished(), (*Rules)(nil).Unfinished(); got != 3 || none != 0 {
		t.Errorf("got %d and %d, want all but the first, and 0 of a database without rules", got, none)
	}
}

func TestNamesOfIndexes(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"", strings.Repeat("n", 41), "top Pages", "pagés", "a\n"} {
		if _, err := ParseIndex(name, "a*", "a"); err == nil || err.Error() != "name is no name of an index (limit: 1 to 40 of a-z, 0-9, - and _)" {
			t.Errorf("%q: got %v", name, err)
		}
	}
}

func TestSuggestRule(t *testing.T) {
	t.Parallel()
	for counter, want := range map[string]string{
		"page:/home": "'page:*=1m:6h,15m:400d'",
		"page:s1:/":  "'page:*=1m:6h,15m:400d'",
		"orders":     "'orders=1m:6h,15m:400d'",
		"=site:s1":   "'=site:*=1m:6h,15m:400d'",
		"it's:a":     `'it'\''s:*=1m:6h,15m:400d'`,
	} {
		if got := SuggestRule(counter); got != want {
			t.Errorf("%s: got %s, want %s", counter, got, want)
		}
	}
}
