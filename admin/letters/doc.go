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
//   - Beyond the deduplication window ids are forgotten. A message of another language loses its id
//     when Pub/Sub moves it aside, and an id that was used with other deltas is taken. Such
//     letters count only as new: under ids made of the old ones and of what they hold, with
//     the time of the request. Replayed as new twice they count once within the window;
//     what was counted under its first id counts a second time.
//   - Asked to count letters as new, it still keeps the ids of those that were maybe
//     counted and whose ids are remembered: new ones could only do harm.
//
// Work of one call is bounded: in letters, and in bytes where letters are read.
package letters
