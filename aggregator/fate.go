package aggregator

import (
	"context"
	"errors"
	"time"

	"github.com/countmill/countmill/wire"
)

// A Fate is what was decided about a dead letter. It is decided once: by who counts it, right
// before, or by who discards it. The first marker under the letter's name stands, so that what
// was discarded is never counted from the letter, by an aggregator either that read it before.
type Fate wire.Fingerprint

// The fates.
const (
	ToCount   Fate = 1 + iota // an aggregator counts it, or has
	Discarded                 // no aggregator does, or will
)

// errUndecided: whose marker is there is not known. To ask again is harmless.
var errUndecided = errors.New("the marker of a dead letter was not found after all")

// Decide makes want the fate of a letter, by its key, unless it has one already, and returns
// the one that it has. After an error it may be either. No part of the letter may be tried
// after until: the fate is remembered longer than that.
func Decide(ctx context.Context, store Folder, letter string, want Fate, until time.Time) (Fate, error) {
	id := wire.LetterID(letter)
	m := Marker{ID: id, Fingerprint: wire.Fingerprint(want), ExpireAt: until.Add(markerSlack)}
	_, err := store.Fold(ctx, &Commit{Markers: []Marker{m}})
	if err == nil {
		return want, nil
	}
	if !errors.Is(err, ErrMarkerExists) {
		return 0, err
	}
	found, err := store.Applied(ctx, []wire.PartID{id})
	if err == nil && len(found) == 0 {
		err = errUndecided
	}
	if err != nil {
		return 0, err
	}
	return Fate(found[0].Fingerprint), nil
}

// Fates returns what was decided about letters, in the order of their keys, 0 where nothing
// was.
func Fates(ctx context.Context, store Folder, letters []string) ([]Fate, error) {
	fates := make([]Fate, len(letters))
	if len(letters) == 0 {
		return fates, nil
	}
	ids := make([]wire.PartID, len(letters))
	for i, letter := range letters {
		ids[i] = wire.LetterID(letter)
	}
	found, err := store.Applied(ctx, ids)
	for _, m := range found {
		for i, id := range ids {
			if id == m.ID {
				fates[i] = Fate(m.Fingerprint)
			}
		}
	}
	return fates, err
}
