// Package verify holds what is stored against what must be: shards against the records of
// their counters, and cached totals against the past. It also shows the shards of one
// counter. Over HTTP too; /openapi.json describes that.
//
// # What is looked for
//
//	orphan      a shard of a counter that has no record: no total has it
//	beyond      a shard whose number the record does not cover: no total has it
//	unreadable  a shard under a key that is not its own, or with no count
//	cached      a cached total that was not the total at the moment that it names, or one
//	            of a moment to come
//
// Shards and records of a page are read at one moment. A fold raises the record first or
// with the shard, so that folds under way are no problem, and whatever is found is one.
//
// A cached total is as old as it says; that the counter has moved on since is no problem.
// Whether it was right at its moment can be told where the store shows the past.
//
// # What is mended
//
// The record is raised to cover the shards that there are: that only ever adds to totals
// what was folded. A wrong cached total is dropped. The rest is for a person.
package verify
