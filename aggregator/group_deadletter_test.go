package aggregator_test

import (
	"strings"
	"testing"
	"time"

	"github.com/countmill/countmill/aggregator"
	"github.com/countmill/countmill/wire"
)

// A message that would increment a group is a dead letter whole, with that reason: no publisher makes one.
func TestMessageWithAGroupIsADeadLetter(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := large(t)
		r := run(t, st, aggregator.Config{})
		batch := wire.Batch{Time: time.Now(), Parts: []wire.Part{
			{ID: wire.PartID{0x10, 1}, Entries: []wire.Entry{{Counter: "page:a:1", Delta: 1}}},
			{ID: wire.PartID{0x10, 2}, Entries: []wire.Entry{{Counter: "=site:a", Delta: 1}}},
		}}
		m := r.sendBytes(t, wire.Append(nil, &batch))
		settle(time.Minute)
		letters := st.DeadLetters()
		if !acked(m) || len(letters) != 1 || !strings.Contains(letters[0].Reason, "begins with =, as groups do") {
			t.Errorf("acknowledged %v, dead letters %+v, want one about the group", acked(m), letters)
		}
		for _, counter := range []string{"page:a:1", "=site:a"} {
			if total := st.Total(counter); total != 0 {
				t.Errorf("%s is %d, want 0", counter, total)
			}
		}
	})
}
