// Package letters lets a person look at dead letters, have them counted after all, and
// remove them; over HTTP too. /openapi.json describes that.
//
// # The promise
//
// A replay asks: an aggregator counts what the letter holds and removes it then, within
// half a minute or so. Until then, and where it cannot be counted after all, the letter
// stays.
//
//   - Under its own ids and time a letter counts once, however often it is replayed, and
//     not at all where it was counted before: safe whatever is known of it.
//   - Beyond the deduplication window ids are forgotten, and a time that is a day ahead is
//     refused. A message of another language loses its id when Pub/Sub moves it aside, and an id
//     that was used with other deltas is taken. Such letters count only as new: with the time of
//     the request where theirs is refused, and under an id made of the old one and of what
//     the part holds where that is taken.
//   - All requests for one letter count it once together: they leave the same markers. As
//     new a letter counts a second time if its marker was forgotten. The answer says where
//     that is possible (Outcome.Twice).
//
// A letter that is Discarded is never counted: that is decided once, by who discards it or
// by the aggregator that counts it. If the aggregator was first the letter is only Removed.
//
// Work of one call is bounded: in letters, and in bytes where letters are read.
package letters
