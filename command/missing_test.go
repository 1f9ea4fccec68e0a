package command

import (
	"io"
	"net/http"
	"strings"
	"testing"
)

// 0 is also the total of a mistyped name: standard error says that no counter has it.
func TestNamesThatDoNotExist(t *testing.T) {
	t.Parallel()
	const no = `,"exists":false`
	for _, test := range []struct{ args, answer, out, errOut string }{
		{"get a", `{"totals":[{"counter":"a","total":0` + no + `}]}`, "0\n", "no counter is named \"a\"\n"},
		{"get a b", `{"totals":[{"counter":"a","total":0,"exists":true},{"counter":"b","total":0` + no + `}]}`, "0\ta\n0\tb\n", "no counter is named \"b\"\n"},
		{"get a,b", `{"totals":[{"counter":"a,b","total":0` + no + `}]}`, "0\n",
			"no counter is named \"a,b\"; the name looks like a list of names: put spaces between them: countmill get a b\n"},
		{"get a,$b", `{"totals":[{"counter":"a,$b","total":0` + no + `}]}`, "0\n",
			"no counter is named \"a,$b\"; the name looks like a list of names: put spaces between them: countmill get a '$b'\n"},
		{"get a,", `{"totals":[{"counter":"a,","total":0` + no + `}]}`, "0\n", "no counter is named \"a,\"\n"},
		{"get page:*", `{"totals":[{"counter":"page:*","total":0` + no + `}]}`, "0\n", "no counter is named \"page:*\"; to see all that begin so: countmill ls page:\n"},
		{"get page:", `{"totals":[{"counter":"page:","total":0` + no + `}]}`, "0\n", "no counter is named \"page:\"; to see all that begin so: countmill ls page:\n"},
		{"get --group a", `{"totals":[{"counter":"=a","total":0` + no + `}]}`, "0\n", "no counter is in a group named \"a\"; \"countmill index list\" shows how groups are named\n"},
		{"get a,b", `{"totals":[{"counter":"a,b","total":3,"exists":true}]}`, "3\n", ""},
		{"get a", `{"totals":[{"counter":"a","total":0}]}`, "0\n", ""},
		{"reset a", `{"counter":"a","removed":0` + no + `}`, "0\n", "no counter is named \"a\"\n"},
		{"reset a,b", `{"counter":"a,b","removed":0` + no + `}`, "0\n",
			"no counter is named \"a,b\"; the name looks like a list of names: run the command once for each\n"},
		{"reset a", `{"counter":"a","removed":5,"exists":true}`, "5\n", ""},
		{"reset a", `{"counter":"a","removed":0}`, "0\n", ""},
		{"delete a", `{"counter":"a","removed":0` + no + `}`, "0\n", "no counter is named \"a\"\n"},
		{"delete a,b", `{"counter":"a,b","removed":0` + no + `}`, "0\n",
			"no counter is named \"a,b\"; the name looks like a list of names: run the command once for each\n"},
		{"shards a", `{"counter":"a"` + no + `,"shards":0,"counts":[]}`, "", "no counter is named \"a\"\n"},
		{"shards a", `{"counter":"a","exists":true,"shards":1,"counts":[]}`, "", ""},
	} {
		f := newFakeServer(t, answer(200, test.answer))
		args := append(strings.Fields(test.args), "--server", f.URL)
		want := test.errOut
		if want != "" {
			want = "countmill: " + want
		}
		if got := try(t, nil, args...); got != (result{0, test.out, want}) {
			t.Errorf("%s: got %+v, want %q and %q", test.args, got, test.out, want)
		}
		if got := try(t, nil, append(args, "--json")...); got != (result{0, test.answer, want}) {
			t.Errorf("%s --json: got %+v, want the answer and %q", test.args, got, want)
		}
	}
}

// A watch says it once, and goes on: the counter may come.
func TestAWatchOfANameThatDoesNotExist(t *testing.T) {
	t.Parallel()
	const none = `{"counter":"a","total":0,"exists":false}`
	events := "event: totals\ndata: {\"totals\":[" + none + `,{"counter":"b","total":2,"exists":true}]}` + "\n\n" +
		"event: totals\ndata: {\"totals\":[{\"counter\":\"a\",\"total\":1,\"exists\":true}]}\n\n" +
		"event: totals\ndata: {\"totals\":[" + none + "]}\n\n"
	stream := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, events)
	}
	got := try(t, nil, "watch", "a", "b", "--server", newFakeServer(t, stream, answer(403, "{}")).URL)
	if want := "countmill: no counter is named \"a\"\n"; strings.Count(got.errOut, want) != 1 || !strings.HasPrefix(got.out, "0\ta\n2\tb\n1\ta\n0\ta\n") {
		t.Errorf("got %+v, want %q once, and the totals", got, want)
	}
}

// The same of a real server, which says it in totals and shards.
func TestNamesThatDoNotExistOnAServer(t *testing.T) {
	t.Parallel()
	p := up(t, t.TempDir())
	env := []string{"COUNTMILL_SERVER=" + p.url}
	try(t, env, "incr", "a")
	try(t, env, "incr", "a", "-1")
	for args, missing := range map[string]bool{"get a": false, "get b": true, "get a,b": true, "shards a": false, "shards b": true} {
		got := try(t, env, strings.Fields(args)...)
		if got.code != 0 || strings.Contains(got.errOut, "no counter is named") != missing {
			t.Errorf("%s: got %+v, want a line about a missing counter: %t", args, got, missing)
		}
	}
}
