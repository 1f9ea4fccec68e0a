package command

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/countmill/countmill/internal/testing/emulator"
	"github.com/countmill/countmill/internal/transfer"
	"github.com/countmill/countmill/internal/transfer/appengine/gaetest"
)

// A gaeApp is an application of the article, and a countmill that adopts its counters.
type gaeApp struct {
	*gaetest.Writer
	to       *process
	env      []string
	snapshot string
	args     []string
}

func newGAEApp(t *testing.T) *gaeApp {
	t.Helper()
	host, project := emulator.Firestore(t), emulator.Project()
	a := &gaeApp{Writer: gaetest.New(t, host, project, "ns"), to: up(t, t.TempDir()), snapshot: filepath.Join(t.TempDir(), "first.ndjson")}
	a.env = []string{"DATASTORE_EMULATOR_HOST=" + host, "COUNTMILL_SERVER=" + a.to.url}
	a.args = []string{"adopt", "gae", "--project", project, "--namespace", "ns", "--java", "votes"}
	return a
}

func (a *gaeApp) adopt(t *testing.T, more ...string) result {
	t.Helper()
	return try(t, a.env, append(append([]string{}, a.args...), more...)...)
}

func (a *gaeApp) want(t *testing.T, totals string, names ...string) {
	t.Helper()
	if got := try(t, a.env, append([]string{"get"}, names...)...); got.out != totals {
		t.Errorf("got %q, want %q", got.out, totals)
	}
}

func TestAdopt(t *testing.T) {
	t.Parallel()
	a := newGAEApp(t)
	a.Python("page", 1, 2, 39)
	a.Java("votes", 5, 5)
	a.JDO("votes", 1, 7)
	a.Go(50, 60)
	a.Simple(1, 2, 3)
	a.DB("zero", 0, 0)
	a.DB("huge", 9007199254740991)

	got := a.adopt(t, "--dry-run", "--snapshot", a.snapshot)
	for _, want := range []string{"COUNTER LAYOUT SHARDS TOTAL IMPORT", "GeneralCounterShard go (grand total) 2 110 110", "SimpleCounterShard simple 3 6 6",
		"huge db 1 9007199254740991 9007199254740991", "page python 3 42 42", "votes java, jdo 3 17 17", "zero db 2 0 0"} {
		if !strings.Contains(strings.Join(strings.Fields(got.out), " "), want) {
			t.Errorf("--dry-run has no line %q:\n%s", want, got.out)
		}
	}
	if got.code != 0 || !strings.Contains(got.errOut, `only their grand total can be adopted, as "GeneralCounterShard" (--go-total)`) || !strings.Contains(got.errOut, "6 counters, 1 of them with nothing to import") {
		t.Errorf("--dry-run: got %+v", got)
	}
	names := []string{"page", "votes", "GeneralCounterShard", "SimpleCounterShard", "zero", "huge"}
	a.want(t, "0\tpage\n0\tvotes\n0\tGeneralCounterShard\n0\tSimpleCounterShard\n0\tzero\n0\thuge\n", names...)

	totals := "42\tpage\n17\tvotes\n110\tGeneralCounterShard\n6\tSimpleCounterShard\n0\tzero\n9007199254740991\thuge\n"
	if got := a.adopt(t, "--snapshot", a.snapshot); got.code != 0 || !strings.Contains(got.out, "5 rows are counted, each once") {
		t.Fatalf("got %+v", got)
	}
	a.want(t, totals, names...)
	a.Python("page", 1, 2, 139) // the source counts on
	if got := a.adopt(t, "--snapshot", a.snapshot); got.code != 0 || !strings.Contains(got.errOut, "Datastore is not read again") {
		t.Errorf("second run: got %+v", got)
	}
	a.want(t, totals, names...)
	if got := a.adopt(t, "--snapshot", a.snapshot, "--dry-run"); !strings.Contains(strings.Join(strings.Fields(got.out), " "), "page snapshot 0 42 42") {
		t.Errorf("--dry-run with a snapshot: got %+v", got)
	}
	// The snapshot is lost. A counter that is the same has its old id. A counter that has changed
	// is not counted again either.
	if err := os.Remove(a.snapshot); err != nil {
		t.Fatal(err)
	}
	os.Remove(a.snapshot + transfer.StateSuffix)
	a.adopt(t, "--snapshot", a.snapshot)
	a.want(t, totals, names...)
}

func TestAdoptWhatCameSince(t *testing.T) {
	t.Parallel()
	a := newGAEApp(t)
	a.Python("page", 1, 2)
	a.Python("still", 4)
	second, third := a.snapshot+".2", a.snapshot+".3"
	since := []string{"--since", a.snapshot, "--snapshot", second}
	cliFails := func(want string, args ...string) {
		t.Helper()
		if got := a.adopt(t, args...); got.code == 0 || !strings.Contains(got.errOut, want) {
			t.Errorf("%q: got %+v, want %q", args, got, want)
		}
	}
	cliFails("was not imported to its end", since...)
	if got := a.adopt(t, "--snapshot", a.snapshot); got.code != 0 {
		t.Fatalf("got %+v", got)
	}
	a.Python("page", 10, 20, 30)
	a.Python("new", 5)
	for range 2 {
		if got := a.adopt(t, since...); got.code != 0 || !strings.Contains(got.out, "2 rows are counted") {
			t.Errorf("got %+v", got)
		}
		a.want(t, "60\tpage\n4\tstill\n5\tnew\n", "page", "still", "new")
		os.Remove(second) // and read anew
	}
	if got := a.adopt(t, since...); got.code != 0 {
		t.Fatalf("got %+v", got)
	}
	a.Python("still", 3) // somebody set it back
	if got := a.adopt(t, "--since", a.snapshot, "--since", second, "--snapshot", third); got.code != 0 {
		t.Errorf("got %+v", got)
	}
	a.want(t, "60\tpage\n3\tstill\n5\tnew\n", "page", "still", "new")
	a.args = append(a.args, "--prefix", "gae:")
	cliFails(`counter "page" of --since is not in the source any more`, "--since", a.snapshot, "--snapshot", third+".4")
}

func TestAdoptLeavesNothingOutSilently(t *testing.T) {
	t.Parallel()
	a := newGAEApp(t)
	got := a.adopt(t, "--snapshot", a.snapshot)
	got.wantError(t, 1, `there are no counters of the article in namespace "ns"`)
	a.Python("good", 1)
	a.Python(" bad", 1)
	a.GoCorrected("mine", 3)
	a.DB("huge", -9007199254740991, -1)
	a.Put("GeneralCounterShard", "whatever", 0)
	for _, dry := range []string{"--dry-run", "--dry-run=false"} {
		got = a.adopt(t, "--snapshot", a.snapshot, dry)
		if got.code != 1 || !strings.Contains(got.errOut, "GeneralCounterShard,whatever: is in no layout") || !strings.Contains(got.errOut, `python counter " bad"`) || !strings.Contains(got.errOut, `counter "huge": -9007199254740992 is more than one increment can add`) ||
			!strings.Contains(got.errOut, "nothing was counted: 3 entities or counters cannot be adopted") {
			t.Errorf("%s: got %+v", dry, got)
		}
	}
	a.want(t, "0\n", "good")
	if got := a.adopt(t, "--snapshot", a.snapshot, "--skip-unknown", "--prefix", "gae:"); got.code != 1 { // " bad" is a name with a prefix
		a.want(t, "1\tgae:good\n1\tgae: bad\n3\tgae:mine\n0\tgood\n", "gae:good", "gae: bad", "gae:mine", "good")
	} else {
		t.Errorf("got %+v", got)
	}
}

func TestAdoptArguments(t *testing.T) {
	t.Parallel()
	try(t, nil, "adopt").wantError(t, 2, "say what to do: gae")
	try(t, nil, "adopt", "redis").wantError(t, 2, `unknown "redis" (try one of: gae)`)
	try(t, nil, "adopt", "gae").wantError(t, 2, "--project is missing")
	try(t, nil, "adopt", "gae", "--project", "p", "--simple", " x").wantError(t, 2, "--simple")
	try(t, nil, "adopt", "gae", "--project", "p", "--since", "x").wantError(t, 2, "--since needs --snapshot")
	try(t, nil, "adopt", "gae", "--project", "p", "--dedup-window", "-1s").wantError(t, 2, "--dedup-window")
	host := emulator.Firestore(t)
	env := []string{"DATASTORE_EMULATOR_HOST=" + host}
	try(t, env, "adopt", "gae", "--project", emulator.Project(), "--snapshot", filepath.Join(t.TempDir(), "s")).
		wantError(t, 1, `the server does not list its kinds: reading Datastore: rpc error: code = InvalidArgument desc = Kind queries are not supported in the Datastore Mode emulator.; name Java's counters with --java`)
}
