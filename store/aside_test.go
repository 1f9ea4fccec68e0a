package store_test

import (
	"testing"

	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/wire"
)

// A head that was applied alone says nothing of its rests: only a whole one was applied with them.
func TestAHeadAloneCountsNoRest(t *testing.T) {
	t.Parallel()
	head, rest := wire.KeyID("me", "k", 0), wire.KeyID("me", "k", 1)
	p := store.AsidePart{ID: rest, Fingerprint: 7, Head: head}
	if p.Counted(map[wire.PartID]store.Marker{head: {ID: head, Fingerprint: 7}}) {
		t.Error("a rest in a dead letter is counted because its head alone was")
	}
	if !p.Counted(map[wire.PartID]store.Marker{head: {ID: head, Fingerprint: 7, Whole: true}}) {
		t.Error("a rest that was applied with its head is not counted")
	}
}
