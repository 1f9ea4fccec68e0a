package sim

import (
	"encoding/json"

	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/wire"
)

// deadLetterSums returns the delta of each increment in dead letters, by counter.
func deadLetterSums(letters []store.DeadLetter) map[string][]int64 {
	sums := make(map[string][]int64)
	for _, d := range letters {
		for _, p := range partsIn(d) {
			for _, e := range p.Entries {
				sums[e.Counter] = append(sums[e.Counter], e.Delta)
			}
		}
	}
	return sums
}

// partsIn returns the parts that a dead letter is about. For a message that nobody read these are
// all its parts. Otherwise a head is left out if it is only there for the part that follows it.
func partsIn(d store.DeadLetter) []wire.Part {
	if e, ok := foreignEntry(d.Payload); ok {
		return []wire.Part{{Entries: []wire.Entry{e}}}
	}
	b, err := decode(d.Payload)
	if err != nil {
		return nil
	}
	if d.Reason == givenUp {
		return b.Parts
	}
	if head := &b.Parts[0]; head.Kind == wire.Head && d.Source != head.ID.String() {
		return b.Parts[1:]
	}
	return b.Parts
}

// foreignEntry returns the increment of a message that no publisher made (oddMessage).
func foreignEntry(payload []byte) (e wire.Entry, ok bool) {
	var inc struct {
		Counter string
		Delta   int64
	}
	err := json.Unmarshal(payload, &inc)
	return wire.Entry{Counter: inc.Counter, Delta: inc.Delta}, err == nil
}
