package httpserver

import (
	"testing"
	"testing/synctest"
	"time"
)

// eachTestServer runs a test with tokens and without.
func eachTestServer(t *testing.T, conns int, test func(t *testing.T, v *testServer, alice, bob string)) {
	t.Parallel()
	t.Run("with tokens", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { test(t, newTestServer(t, true, conns), "alice", "bob") })
	})
	t.Run("without tokens", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { test(t, newTestServer(t, false, conns), "", "") })
	})
}

// However many connections strangers open, kept ones of callers are not replaced, and a new caller and a probe get
// their answers.
func TestStrangersReplaceOnlyEachOther(t *testing.T) {
	eachTestServer(t, 8, func(t *testing.T, v *testServer, alice, _ string) {
		kept := v.visitor(alice)
		if got := kept.asks("/read"); got != 200 {
			t.Fatalf("a call is answered with %d", got)
		}
		first := v.visitor("")
		for i := range 30 {
			switch stranger := v.visitor(""); i % 3 {
			case 0:
				stranger.begins("POST", "/nowhere", halfBody)
			case 1:
				stranger.asks("/healthz")
			}
		}
		if !first.over(time.Second) {
			t.Error("the stranger that waited longest has its connection beside 30 newer ones")
		}
		if got := kept.asks("/read"); got != 200 {
			t.Errorf("a kept connection gets %d beside strangers", got)
		}
		if got := v.visitor(alice).asks("/read"); got != 200 {
			t.Errorf("a new connection gets %d beside strangers", got)
		}
		if got := v.visitor("").asks("/healthz"); got != 200 {
			t.Errorf("a probe gets %d beside strangers", got)
		}
	})
}

// The longest wait among the connections of callers gives way, and no connection with a request under way.
// If all have one, a further call is refused at once, and a probe is answered.
func TestCallersReplaceThoseThatWait(t *testing.T) {
	eachTestServer(t, 8, func(t *testing.T, v *testServer, alice, bob string) { // 6 of them for callers
		busy := v.visitor(alice)
		busy.begins("GET", "/busy", noBody)
		var kept []*visitor
		for range 5 {
			kept = append(kept, v.visitor(bob))
			kept[len(kept)-1].asks("/read")
		}
		kept[0].asks("/read")
		v.visitor(bob).asks("/read")
		if kept[0].over(time.Second) || !kept[1].over(time.Second) {
			t.Error("another connection gave way than the one that waited longest")
		}
		for range 5 {
			v.visitor(alice).begins("GET", "/busy", noBody)
		}
		late := v.visitor(bob)
		if got := late.asks("/read"); got != 429 {
			t.Errorf("with a request under way on each connection a call gets %d, want 429", got)
		}
		if got := late.asks("/healthz"); got != 200 {
			t.Errorf("then a probe gets %d", got)
		}
		v.release <- struct{}{}
		if got := busy.reads(); got != 200 {
			t.Errorf("a request under way got %d", got)
		}
		if got := late.asks("/read"); got != 200 {
			t.Errorf("a call gets %d after another has ended", got)
		}
		for range 5 {
			v.release <- struct{}{}
		}
	})
}

// A token with all that it can get leaves room for another token.
func TestCallersHaveAShareOfConnections(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		v := newTestServer(t, true, 40) // 30 for callers
		for range 40 {
			hog := v.visitor("alice")
			hog.begins("GET", "/busy", noBody)
			if hog.over(time.Millisecond) {
				t.Error("a request under way was cut")
			}
		}
		for range 3 {
			if got := v.visitor("bob").asks("/read"); got != 200 {
				t.Errorf("beside a caller with many connections another gets %d", got)
			}
		}
		close(v.release)
	})
}

// Callers that send half of a request hold nothing: the connection that waited longest for the rest gives way.
func TestHalfRequestsGiveWay(t *testing.T) {
	eachTestServer(t, 8, func(t *testing.T, v *testServer, alice, bob string) {
		for range 20 {
			v.visitor(alice).begins("POST", "/count", halfBody)
		}
		caller := v.visitor(bob)
		if got := caller.asks("/read"); got != 200 {
			t.Errorf("beside 20 half requests a call gets %d", got)
		}
		caller.begins("POST", "/count", "Content-Length: 2\r\n\r\n{}")
		if got := caller.reads(); got != 200 {
			t.Errorf("beside 20 half requests a whole one gets %d", got)
		}
	})
}

func TestConnectionsFitOpenFiles(t *testing.T) {
	t.Parallel()
	for files, want := range map[uint64]int{0: 10_000, 1: 1, 256: 64, 1024: 424, 4096: 3496, 20_000: 10_000, 1 << 62: 10_000} {
		if got := defaultConns(files); got != want {
			t.Errorf("of %d open files %d may be connections, want %d", files, got, want)
		}
	}
}
