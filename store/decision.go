package store

import (
	"context"
	"errors"
	"time"

	"github.com/countmill/countmill/wire"
)

// A Decision says what becomes of a dead letter: it is counted, or discarded. The first marker under
// the letter's name decides. So a discarded letter is never counted, even by an aggregator that
// had read it before.
type Decision wire.Fingerprint

// The decisions.
const (
	DecisionCounted   Decision = 1 + iota // an aggregator counts the letter, or has counted it
	DecisionDiscarded                     // no aggregator counts it
)

// errUndecided: a marker refused the decision, and a look-up did not find it. Ask again.
var errUndecided = errors.New("the marker of a dead letter exists, but a look-up did not find it; ask again")

// DecideDeadLetter gives a letter the decision want, unless the letter has one already, and returns the
// decision. After an error the decision is not known. latest is the latest time that a part of the letter
// may have (Latest). The store remembers the decision for as long as such a part may be counted. s
// must be no older than SettingsMaxAge.
func DecideDeadLetter(ctx context.Context, folder Folder, letter string, want Decision, latest time.Time, s Settings) (Decision, error) {
	m := Marker{ID: wire.DeadLetterID(letter), Fingerprint: wire.Fingerprint(want), At: latest, ExpireAt: s.Expiry(latest, latest)}
	_, err := folder.Fold(ctx, &Commit{Markers: []Marker{m}, Rules: AnyRules})
	if err == nil {
		return want, nil
	}
	if !errors.Is(err, ErrMarkerExists) {
		return 0, err
	}
	found, err := Decisions(ctx, folder, []string{letter})
	if err == nil && found[0] == 0 {
		err = errUndecided
	}
	return found[0], err
}

// Decisions returns the decision of each letter, in the order of letters; 0 for an undecided one.
func Decisions(ctx context.Context, folder Folder, letters []string) ([]Decision, error) {
	decisions := make([]Decision, len(letters))
	ids := make([]wire.PartID, len(letters))
	for i, letter := range letters {
		ids[i] = wire.DeadLetterID(letter)
	}
	found, err := folder.Applied(ctx, ids)
	for _, m := range found {
		for i, id := range ids {
			if id == m.ID {
				decisions[i] = Decision(m.Fingerprint)
			}
		}
	}
	return decisions, err
}
