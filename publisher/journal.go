package publisher

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/wire"
)

// Increments of counters with a journal are evidence of who sent them. So those of different senders are
// not summed, and each part carries its sender. Those of one sender in one batch are still one sum.

type senderKey struct{}

// WithSender returns a context for Publish, PublishKeyed and PublishPast that has the sender of the increments:
// the name of a token, as countmill.CheckID has it.
func WithSender(ctx context.Context, name string) context.Context {
	if name == "" {
		return ctx
	}
	return context.WithValue(ctx, senderKey{}, name)
}

func senderOf(ctx context.Context) string {
	name, _ := ctx.Value(senderKey{}).(string)
	if name != "" && countmill.CheckID("sender", name) != nil {
		return "" // it could not be sent
	}
	return name
}

// keepApart takes the increments out of the request that must not be summed with those of other senders.
func (r *request) keepApart(journal func(counter string) bool, sender string) {
	if journal == nil || sender == "" {
		return
	}
	a := apart{sender: sender}
	r.items = slices.DeleteFunc(r.items, func(it item) bool { return a.take(journal, timed{it, 0}) })
	r.timed = slices.DeleteFunc(r.timed, func(it timed) bool { return a.take(journal, it) })
	if len(a.items) > 0 {
		r.apart = &a
	}
	for i := range r.parts {
		if p := &r.parts[i]; slices.ContainsFunc(p.Entries, func(e wire.Entry) bool { return journal(e.Counter) }) {
			p.Sender = sender
		}
	}
}

// apart is increments of one sender.
type apart struct {
	sender string
	items  []timed // a minute of 0 is that at which the request came
}

func (a *apart) take(journal func(counter string) bool, it timed) bool {
	if !journal(it.counter) {
		return false
	}
	a.items = append(a.items, it)
	return true
}

// A kept is an increment that is summed with those of its sender and minute alone. The sender is empty if
// only its minute is apart.
type kept struct {
	timed
	sender string
}

// takeKept takes the increments that a request keeps apart. came is the minute at which it came.
func (s *flush) takeKept(r *request, came wire.Minute) {
	if r.apart == nil {
		return
	}
	for _, it := range r.apart.items {
		if it.minute == 0 {
			it.minute = came
		}
		s.kept = append(s.kept, kept{it, r.apart.sender})
	}
	r.apart = nil
}

// cutKept visits the layers of each sender and minute.
func (s *flush) cutKept(visit func(sender string, minute wire.Minute, layers [][]wire.Entry)) {
	slices.SortFunc(s.kept, func(a, b kept) int {
		return cmp.Or(strings.Compare(a.sender, b.sender), cmp.Compare(a.minute, b.minute), compareItems(a.item, b.item))
	})
	for all := s.kept; len(all) > 0; {
		n := 1
		for n < len(all) && all[n].sender == all[0].sender && all[n].minute == all[0].minute {
			n++
		}
		items := make([]item, n)
		for i := range items {
			items[i] = all[i].item
		}
		visit(all[0].sender, all[0].minute, sumItems(make([][]wire.Entry, 1), items))
		all = all[n:]
	}
	s.kept = nil
}
