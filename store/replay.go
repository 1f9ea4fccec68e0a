package store

import "strings"

const (
	replayPrefix = "manual:"

	// ReplayKeysEnd sorts after all keys of replay requests (ReplayKey) and before the keys
	// of other letters behind them.
	ReplayKeysEnd = "manual;"
)

// ReplayKey returns the key of the replay request of a letter. A replay request is a copy of
// the letter, or a batch with its increments under other ids. PutDeadLetters makes the request,
// once however often it is repeated; DeleteDeadLetters withdraws it.
//
// The request goes through the store because the process that asks may run apart from every
// bus, and because a bus gives a batch a new time: a letter beyond the window would look young.
// The letter stays until it is counted, or for good if it is set aside again for the same reason.
//
// The keys of replay requests sort together, behind the keys of all other letters.
func ReplayKey(letter string) string { return replayPrefix + letter }

// ReplayOf returns the key of the letter that a replay request is about. ok is false if key is
// not the key of a replay request.
func ReplayOf(key string) (letter string, ok bool) { return strings.CutPrefix(key, replayPrefix) }
