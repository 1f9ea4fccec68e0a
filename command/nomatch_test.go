package command

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

// recountAnswer is the answer about one range without findings.
func recountAnswer(counters, buckets, opened int, notCovered string) string {
	return fmt.Sprintf(`{"findings":[],"counters":%d,"buckets":%d,"entries":9,"opened":%d,"not_covered":{%s},"not_covered_names":[],"done":1000}`+"\n",
		counters, buckets, opened, notCovered)
}

// A recount that compares nothing fails. A recount that writes opening balances has done its work.
func TestRecountOfNothing(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		args   []string
		answer string
		code   int
		want   string // the last line
	}{
		{[]string{"billing:"}, recountAnswer(1, 0, 0, ""), 0, "1 counter and 0 buckets compared"},
		{[]string{"nope:"}, recountAnswer(0, 0, 0, ""), 3, `countmill: nothing was compared: no name begins with "nope:"`},
		{[]string{"nope:", "--json"}, recountAnswer(0, 0, 0, ""), 3, `countmill: nothing was compared: no name begins with "nope:"`},
		{[]string{"billing:*"}, recountAnswer(0, 0, 0, ""), 3, `countmill: nothing was compared: no name begins with "billing:*"; a PREFIX has no * behind it: write "billing:"`},
		{nil, recountAnswer(0, 0, 0, ""), 3, "countmill: nothing was compared: there are no counters"},
		{[]string{"billing:"}, recountAnswer(0, 0, 0, `"no rule":2`), 3, "countmill: nothing was compared"},
		{[]string{"--opening"}, recountAnswer(0, 0, 0, ""), 0, "0 opening balances written"},
		{[]string{"--opening"}, recountAnswer(0, 0, 0, `"no rule":2`), 3, "countmill: nothing was compared"},
		{[]string{"--opening", "billing:*"}, recountAnswer(0, 0, 0, ""), 3, `countmill: nothing was compared: no name begins with "billing:*"; a PREFIX has no * behind it: write "billing:"`},
		{[]string{"billing:", "--opening"}, recountAnswer(0, 0, 2, `"no opening balance until now":2`), 0, "2 not compared: no opening balance until now"},
		{[]string{"billing:", "--to", "2026-11-25"}, recountAnswer(2, 0, 0, ""), 0, "0 buckets of 2 counters compared, and no totals"},
	} {
		f := newFakeServer(t, answer(200, tt.answer))
		got := cli(t, nil, append(append([]string{"recount"}, tt.args...), "--server", f.URL)...)
		lines := strings.Split(strings.TrimSpace(got.errOut), "\n")
		if got.code != tt.code || lines[len(lines)-1] != tt.want {
			t.Errorf("recount %q: got %+v, want code %d and %s", tt.args, got, tt.code, tt.want)
		}
	}
	for _, to := range []string{"2026-11-25", "2026-11-24", "2026-11-25T00:00:59Z"} {
		cli(t, nil, "recount", "--from", "2026-11-25", "--to", to).wantError(t, 2, "--to: must be a minute after --from, or later")
	}
	cli(t, nil, "recount", "--from", "2026-13-01").wantError(t, 2, "--from: must be like 2006-01-02T15:04:05.000000Z or 2006-01-02")
}

// Names may have a *, so a pattern in place of a prefix is no mistake of the command line. Each command reports that it found nothing.
func TestPrefixesThatMatchNothing(t *testing.T) {
	t.Parallel()
	const nothing = `no name begins with "page:*"; a PREFIX has no * behind it: write "page:"`
	tokens := filepath.Join(t.TempDir(), "tokens")
	for _, tt := range []struct {
		args   []string
		answer string
		code   int
		want   string // in standard error
	}{
		{[]string{"ls", "page:*"}, `{"totals":[],"as_of":"2026-11-25T10:00:00Z"}`, 0, nothing},
		{[]string{"ls"}, `{"totals":[],"as_of":"2026-11-25T10:00:00Z"}`, 0, ""},
		{[]string{"verify", "page:*"}, `{"problems":[],"shards":0,"groups":0}`, 3, `nothing was checked: no shard and no group has a name that begins with "page:*"; a PREFIX has no * behind it: write "page:"`},
		{[]string{"verify", "=site:"}, `{"problems":[],"shards":0,"groups":3}`, 0, "3 groups"}, // built from counters, and not incremented since
		{[]string{"verify"}, `{"problems":[],"shards":0}`, 0, "0 shards"},
		{[]string{"verify", "page:"}, `{"problems":[],"shards":1}`, 0, "1 shards"},
		{[]string{"export", "page:"}, `{"totals":[{"counter":"page:a","total":0}],"overflowed":[],"as_of":"2026-11-25T10:00:00Z"}`, 0, "1 left out as their total is 0"},
		{[]string{"export", "page:*"}, `{"totals":[],"overflowed":[],"as_of":"2026-11-25T10:00:00Z"}`, 0, nothing},
		{[]string{"rule", "add", "series", "p*ge:=1m:6h,15m:400d"}, `{"series":[],"journal":[]}`, 0, `"p*ge:" is of names that have this *`},
		{[]string{"rule", "add", "series", "page:*=1m:6h,15m:400d"}, `{"series":[],"journal":[]}`, 0, "no rules"},
		{[]string{"token", "new", "web", "--scope", "read", "--prefix", "page:*", "--file", tokens}, "", 0, `the prefix "page:*" is of names that have this *; for all that begin with "page:" leave the * out`},
		{[]string{"token", "new", "all", "--scope", "read", "--prefix", "page:", "--file", tokens}, "", 0, ""},
		{[]string{"share", "page:*"}, "", 0, `the prefix "page:*" is of names`},
		{[]string{"watch", "--prefix", "page:*"}, "", 1, `the prefix "page:*" is of names`},
	} {
		f := newFakeServer(t, answer(200, tt.answer))
		args := tt.args
		if args[0] != "token" {
			args = append(args, "--server", f.URL)
		}
		got := cli(t, nil, args...)
		if got.code != tt.code || !strings.Contains(got.errOut, tt.want) || tt.want == "" && got.errOut != "" || strings.Contains(got.errOut, "no name begins") != strings.Contains(tt.want, "no name begins") || strings.Contains(got.errOut, "*") != strings.Contains(tt.want, "*") {
			t.Errorf("%q: got %+v, want code %d and %q", tt.args, got, tt.code, tt.want)
		}
	}
}

// A token may be for other names.
func TestPrefixesThatMatchNothingOfAToken(t *testing.T) {
	t.Parallel()
	f := newFakeServer(t, answer(200, `{"totals":[],"as_of":"2026-11-25T10:00:00Z"}`))
	got := cli(t, []string{"COUNTMILL_TOKEN=cmtok_x"}, "ls", "p*", "--server", f.URL)
	if want := (result{0, "", "countmill: no name that this token may read begins with \"p*\"; a PREFIX has no * behind it: write \"p\"\n"}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// An export of nothing says which counters it looked for.
func TestJournalExportOfNothing(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"billing:":  `has no entries of the counter "billing:" in this period; for all counters that begin so, write "billing:*"`,
		"billing:*": `has no entries of counters that begin with "billing:" in this period`,
		"":          "0 entries in",
	} {
		page := `{"records":[],"entries":[],"settled_until":"2030-01-01T00:00:00Z"}`
		args := []string{"journal", "export", "--from", "2026-11-01", "--to", "2026-11-02", "--server", newFakeServer(t, answer(200, page)).URL}
		if name != "" {
			args = append(args, name)
		}
		if got := cli(t, nil, args...); got.code != 0 || !strings.Contains(got.errOut, want) || name == "" && strings.Contains(got.errOut, "no entries") {
			t.Errorf("%q: got %+v, want %s", name, got, want)
		}
	}
}
