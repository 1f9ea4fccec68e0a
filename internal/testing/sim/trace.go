package sim

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/wire"
)

// say writes a line of the trace for readers: the step, the age of the schedule, the process, and
// the event.
func (k *kernel) say(p *proc, format string, args ...any) {
	if !k.verbose {
		return
	}
	name := ""
	if p != nil {
		name = p.name
	}
	k.Trace = append(k.Trace, fmt.Sprintf("%5d %13s  %-15s ", k.Steps, k.age(), name)+fmt.Sprintf(format, args...))
}

func (k *kernel) age() time.Duration { return time.Since(k.began) }

// A text is put into words only where somebody reads along.
type text func() string

func (k *kernel) words(what string, t text) string {
	if !k.verbose || t == nil {
		return what
	}
	return what + " " + t()
}

// describe writes the properties of the schedule.
func (k *kernel) describe() {
	if !k.verbose {
		return
	}
	k.say(nil, "seed %d, embedded %t, the store's clock %s off", k.seed, k.embedded, k.storeSkew)
	k.say(nil, "shape %+v", k.shape)
	for f, rate := range k.rates {
		if rate > 0 {
			k.say(nil, "may happen: %s (%g)", Fault(f), rate)
		}
	}
}

// sumText names the increments that a delta is the sum of: a#0,3 are the first and the
// fourth of counter a. Those of a crowd are all the same, and so are wrong sums.
func sumText(counter string, delta int64) string {
	rest := delta
	if counter == below {
		rest = -rest
	}
	if counter == flood || counter == swarm || rest <= 0 {
		return fmt.Sprintf("%s%+d", counter, delta)
	}
	var digits []string
	for digit := 0; rest > 0; digit, rest = digit+1, rest>>2 {
		switch n := rest & 3; n {
		case 0:
		case 1:
			digits = append(digits, fmt.Sprint(digit))
		default:
			digits = append(digits, fmt.Sprint(digit, "(", n, " times)"))
		}
	}
	return counter + "#" + strings.Join(digits, ",")
}

func short(id wire.PartID) string { return id.String()[:8] }

// partText is a part's short id and its increments, and a note if it is a head.
func partText(p *wire.Part) string {
	var b strings.Builder
	b.WriteString(short(p.ID) + "{")
	for i, e := range p.Entries {
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(sumText(e.Counter, e.Delta))
	}
	b.WriteByte('}')
	if p.Kind == wire.Head {
		b.WriteString(" (head)")
	}
	return b.String()
}

// payloadText describes the content of a message.
func payloadText(payload []byte) string {
	batch, err := decode(payload)
	if err != nil && strings.HasPrefix(string(payload), "{") {
		return string(payload)
	}
	if err != nil {
		return fmt.Sprintf("of %d bytes that are no batch: %.60q", len(payload), payload)
	}
	parts := make([]string, len(batch.Parts))
	for i := range batch.Parts {
		parts[i] = partText(&batch.Parts[i])
	}
	return strings.Join(parts, " ")
}

func commitText(c *store.Commit) string {
	var b strings.Builder
	b.WriteString("commit, markers")
	for _, m := range c.Markers {
		b.WriteString(" " + short(m.ID))
	}
	b.WriteString(", adds")
	for _, a := range c.Adds {
		fmt.Fprintf(&b, " %s/%d+{%s}", a.Counter, a.Shard, sumText(a.Counter, a.Delta))
	}
	if len(c.Growths) > 0 {
		fmt.Fprintf(&b, ", raises %v", c.Growths)
	}
	return b.String()
}

func joined(names []string) text { return func() string { return strings.Join(names, " ") } }

func cachedText(totals []store.CachedTotal) string {
	names := make([]string, len(totals))
	for i, t := range totals {
		names[i] = fmt.Sprintf("%s as of %s", sumText(t.Counter, t.Total), t.AsOf.Format(clockFormat))
	}
	return strings.Join(names, ", ")
}

// answerText describes an answer: the error, or the result.
func answerText(err error, found text) string {
	switch {
	case errors.Is(err, errLost):
		return "no answer"
	case err != nil:
		return strings.TrimPrefix(err.Error(), "sim: ")
	case found == nil:
		return "OK"
	}
	return found()
}
