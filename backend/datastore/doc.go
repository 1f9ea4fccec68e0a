// Package datastore is the store on Google's Firestore in Datastore mode. Package protocol has all that knows counters; this
// package is an engine below it (package engine), and how to open and examine one.
//
//	datastore.go  opening; probe.go: tests of a server; links.go: the same database over a new connection
//	dial.go, config.go  the connection
//	database.go   the engine and its limits
//	entity.go     rows as entities
//	commit.go     commits and transactions; answer.go: the meaning of their answers
//	view.go       look-ups and moments; scan.go: queries
//	examine.go    for countmill doctor
//
// # Entities
//
// A row is an entity, so that a fold of a counter writes one. Its kind is Countmill and the name of the row's kind
// (protocol.Kinds). The name of its key is
//
//	PLACE-NAME<tab>PART
//
// PLACE are the upper 32 bits of the place in hex, and all 64 if the lower ones are not 0. Places are hashes: with neighbouring keys one
// tablet would get all the load. Kinds without places begin with the dash, those without parts end with the name. PART has six digits in
// hex. A name of bytes is in hex too. So keys have the order of rows.
//
// A field is a property with its name: for one of many, the name and its number. A wide field has a second one
// with _high behind it, while it is not 0: the sum is the first plus 2^32 times the second (engine.Int.Split). An ordinary delta has
// no second part, and the first reaches an end of int64, where increments have no effect, after 2^32 folds of one
// shard at the soonest.
//
//	name       (indexed) the name, of shards, and of records and rows of the journal: queries go by it
//	data       Row.Data
//	expire_at  a time, for a TTL policy; other kinds have an indexed number (Kind.Due)
//
// # Commits
//
// A commit is one call, with a single-use transaction. It inserts markers and increments counts with property transforms, and
// reads nothing. No layer below this package repeats a call that may have reached the server: a repeated increment counts twice, unless
// its marker is in the same commit. So this package calls the module's stubs. The module's client repeats commits unseen, has no
// single-use transaction, and drops the results of transforms and the times of commits and reads.
//
// A server may not support transforms: Google's older Datastore emulator ignores them and answers OK.
// [Open] detects that with a probe, and refuses the server. It also refuses a database with entity
// groups, which accepts only 25 entities a commit. Every later answer is checked as well.
//
// # Transactions and views
//
// The service locks the entities that a transaction has read, also absent ones, until it ends. So a commit of these rows
// waits, or the transaction fails with ABORTED and has applied nothing.
//
// The first call of a view is strong, and its read_time fixes the moment of all others. A server that
// sends no read_time, like the older emulator, is refused.
package datastore
