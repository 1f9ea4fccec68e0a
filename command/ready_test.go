package command

import "testing"

func TestReady(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]string{
		`{"status":"ready"}`:                       "ready\n",
		`{"status":"degraded","reason":"no milk"}`: "degraded: no milk\n",
	} {
		f := newFakeServer(t, answer(200, body))
		if got := try(t, nil, "ready", "--server", f.URL); got != (result{0, want, ""}) {
			t.Errorf("%s: got %+v, want %q", body, got, want)
		}
		if f.paths[0] != "/readyz" {
			t.Errorf("asked %s, want /readyz", f.paths[0])
		}
		if got := try(t, []string{"COUNTMILL_SERVER=" + f.URL}, "ready", "--json"); got != (result{0, body, ""}) {
			t.Errorf("%s --json: got %+v", body, got)
		}
	}
	away := newFakeServer(t, answer(503, `{"title":"not ready","detail":"store is away"}`))
	try(t, nil, "ready", "--server", away.URL).wantError(t, 1, "store is away (HTTP 503)")
	html := newFakeServer(t, answer(200, "<html>"))
	try(t, nil, "ready", "--server", html.URL).wantError(t, 1, "is that a countmill?")
	try(t, nil, "ready", "now").wantError(t, 2, `takes no arguments, got "now"`)
	try(t, nil, "ready", "--server", "127.0.0.1:1").wantError(t, 1, "nothing answers")
}
