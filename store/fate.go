package store

import (
	"context"
	"errors"
	"time"

	"github.com/countmill/countmill/wire"
)

// A Fate is the decision about a dead letter: count it, or discard it. The first marker under
// the letter's name decides. So a discarded letter is never counted, even by an aggregator that
// had read it before.
type Fate wire.Fingerprint

// The fates.
const (
	FateCounted   Fate = 1 + iota // an aggregator counts the letter, or has counted it
	FateDiscarded                 // no aggregator counts it
)

// errUndecided: a marker refused the decision, and a look-up did not find it. Ask again.
var errUndecided = errors.New("the marker of a dead letter exists, but a look-up did not find it; ask again")

// DecideFate gives a letter the fate want, unless the letter has one already, and returns the
// fate. After an error the fate is not known. latest is the latest time that a part of the letter
// may have (Latest). The store remembers the fate for as long as such a part may be counted. s
// must be no older than SettingsMaxAge.
func DecideFate(ctx context.Context, folder Folder, letter string, want Fate, latest time.Time, s Settings) (Fate, error) {
	id := wire.LetterID(letter)
	m := Marker{ID: id, Fingerprint: wire.Fingerprint(want), At: latest, ExpireAt: s.Expiry(latest, latest)}
	_, err := folder.Fold(ctx, &Commit{Markers: []Marker{m}, Rules: AnyRules})
	if err == nil {
		return want, nil
	}
	if !errors.Is(err, ErrMarkerExists) {
		return 0, err
	}
	found, err := folder.Applied(ctx, []wire.PartID{id})
	if err == nil && len(found) == 0 {
		err = errUndecided
	}
	if err != nil {
		return 0, err
	}
	return Fate(found[0].Fingerprint), nil
}

// Fates returns the fate of each letter, in the order of letters; 0 for an undecided one.
func Fates(ctx context.Context, folder Folder, letters []string) ([]Fate, error) {
	fates := make([]Fate, len(letters))
	if len(letters) == 0 {
		return fates, nil
	}
	ids := make([]wire.PartID, len(letters))
	for i, letter := range letters {
		ids[i] = wire.LetterID(letter)
	}
	found, err := folder.Applied(ctx, ids)
	for _, m := range found {
		for i, id := range ids {
			if id == m.ID {
				fates[i] = Fate(m.Fingerprint)
			}
		}
	}
	return fates, err
}
