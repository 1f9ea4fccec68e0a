// Package store is the contract of a store, for every technology: the data that a store keeps,
// its promises, and for how long they hold.
//
//	fold.go         commits of markers and shard deltas, applied whole or not at all
//	counters.go     the records of counters: shards, resets, sweeps
//	view.go         consistent reads
//	series.go       sums over time
//	deadletters.go  letters that could not be counted; replay.go and decision.go: how one is replayed once
//	heartbeat.go    what aggregators report, and the meta record
//	settings.go     the deduplication window, kept in the database, and with it the rules
//	rules.go        which counters keep a series or a journal; they are settings too. retention.go: for how long
//	safety.go       every duration that a proof rests on, with their relations
//	survey.go       shards as they are stored, for verification and export
//	sequence.go     numbers that are given out once each
//	cache.go        totals that may be forgotten at any time
//
// The bus has no contract here: it is Watermill's message.Publisher and message.Subscriber. Package
// wire has three additions that a bus may use: Reply lists the parts that were not counted,
// DeliverOnce marks a message that cannot come again, and HeldError asks the publisher for patience.
//
// Package storetest has the suites that every store, cache and bus passes.
package store
