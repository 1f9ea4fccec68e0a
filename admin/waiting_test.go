package admin_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/countmill/countmill/admin"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/storetest/fakestore"
)

// A request for a replay is not listed as a dead letter, at any start or end of a page.
func TestReplayRequestsAreNoDeadLetters(t *testing.T) {
	t.Parallel()
	st := fakestore.New(fakestore.Options{})
	l := admin.NewDeadLetters(st)
	now := time.Now()
	var all []string
	for i, key := range []string{"0a", "0b", "fe", "ff", "other:01:a", "other:01:b"} {
		all = append(all, key)
		if err := st.PutDeadLetters(t.Context(), []store.DeadLetter{{Key: key, Time: now, Payload: encode(now, anonymous(entry("a", int64(1+i))))}}); err != nil {
			t.Fatal(err)
		}
		if key == "0b" || key == "other:01:a" {
			continue
		}
		if done, err := l.Replay(t.Context(), []string{key}, false); err != nil || done[0].Result != admin.ResultAsked {
			t.Fatal(done, err)
		}
	}
	for limit := 1; limit < 10; limit++ {
		var keys []string
		after := ""
		for {
			page, err := l.List(t.Context(), after, limit)
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range page.DeadLetters {
				keys = append(keys, d.Key)
				if want := d.Key != "0b" && d.Key != "other:01:a"; d.Asked != want {
					t.Errorf("dead letter %+v, want it asked for: %t", d, want)
				}
			}
			if after = page.Next; after == "" {
				break
			}
		}
		if fmt.Sprint(keys) != fmt.Sprint(all) {
			t.Errorf("limit %d: %q, want %q", limit, keys, all)
		}
	}
	for key, want := range map[string][2]bool{"ff": {true, true}, "manual:ff": {}, "0b": {true, false}} {
		if d, _, found, err := l.Show(t.Context(), key); err != nil || [2]bool{found, d.Asked} != want {
			t.Errorf("%s: found %t, asked %t, %v; want %v", key, found, d.Asked, err, want)
		}
	}
	if done, err := l.Discard(t.Context(), []string{"ff"}); err != nil || done[0].Result != admin.ResultDiscarded {
		t.Fatal(done, err)
	}
	if left, err := st.GetDeadLetters(t.Context(), []string{"ff", "manual:ff", "manual:fe"}); err != nil || len(left) != 1 {
		t.Errorf("after a discard: %v, %v; want only the request for another", left, err)
	}
}
