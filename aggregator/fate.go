package aggregator

import (
	"context"
	"errors"
	"time"

	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/wire"
)

// A Fate is the decision about a dead letter: to count it, or to discard it. The first marker
// under the letter's name decides. So a discarded letter is never counted, even by an aggregator
// that had read it before.
type Fate wire.Fingerprint

// The fates.
const (
	ToCount   Fate = 1 + iota // an aggregator counts it, or has
	Discarded                 // no aggregator does, or will
)

// errUndecided: a marker refused the decision, and a look-up did not find it. Ask again.
var errUndecided = errors.New("the marker of a dead letter was not found after all")

// Decide makes want the fate of a letter, by its key, unless it has one already, and returns
// its fate. After an error the fate is not known. latest is the latest time that a part of the
// letter may have (store.Latest): as long as settings let such a part be counted, the fate is
// remembered. s are the settings, which are no older than store.SettingsMaxAge.
func Decide(ctx context.Context, folder Folder, letter string, want Fate, latest time.Time, s store.Settings) (Fate, error) {
	id := wire.LetterID(letter)
	m := Marker{ID: id, Fingerprint: wire.Fingerprint(want), At: latest, ExpireAt: s.Expiry(latest, latest)}
	_, err := folder.Fold(ctx, &Commit{Markers: []Marker{m}})
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

// Fates returns the fates of letters, in the order of their keys, 0 for an undecided one.
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
