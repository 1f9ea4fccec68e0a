package morgue_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/countmill/countmill/admin/letters"
	"github.com/countmill/countmill/internal/morgue"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/storetest/fakestore"
)

// A request for a replay is not listed as a letter, wherever a page begins or ends.
func TestWishesAreNoLetters(t *testing.T) {
	t.Parallel()
	m := morgue.Morgue{Store: fakestore.New(fakestore.Options{})}
	var all []string
	for _, key := range []string{"0a", "0b", "fe", "ff", "other:01:a", "other:01:b"} {
		all = append(all, key)
		if err := m.Store.PutDeadLetters(t.Context(), []store.DeadLetter{{Key: key, Payload: []byte(key)}}); err != nil {
			t.Fatal(err)
		}
		if key == "0b" || key == "other:01:a" {
			continue
		}
		if err := m.Ask(t.Context(), letters.Letter{Key: key}); err != nil {
			t.Fatal(err)
		}
	}
	for limit := 1; limit < 10; limit++ {
		var keys []string
		after := ""
		for {
			page, err := m.Page(t.Context(), after, limit)
			if err != nil {
				t.Fatal(err)
			}
			for _, l := range page {
				keys = append(keys, l.Key)
				if want := l.Key != "0b" && l.Key != "other:01:a"; l.Asked != want || string(l.Payload) != l.Key {
					t.Errorf("letter %+v, want it asked for: %t", l, want)
				}
				after = l.Key
			}
			if len(page) < limit {
				break
			}
		}
		if fmt.Sprint(keys) != fmt.Sprint(all) {
			t.Errorf("limit %d: %q, want %q", limit, keys, all)
		}
	}
	found, err := m.Find(t.Context(), []string{"ff", "manual:ff", "0b"})
	if err != nil || len(found) != 2 || found[0].Key != "ff" || !found[0].Asked || found[1].Asked {
		t.Errorf("Find: %+v, %v; want ff, asked for, and 0b", found, err)
	}
	if uncounted, err := m.Discard(t.Context(), "ff", time.Now(), store.NewSettings(time.Hour, time.Now())); !uncounted || err != nil {
		t.Fatal(uncounted, err)
	}
	if left, err := m.Store.GetDeadLetters(t.Context(), []string{"ff", "manual:ff", "manual:fe"}); err != nil || len(left) != 1 {
		t.Errorf("after a discard: %v, %v; want only the wish for another", left, err)
	}
}
