// Package protocol is a store over any engine: it has everything that knows counters. [Store] implements store.Store.
//
//	kinds.go     all rows of a database, in one table
//	facts.go     what follows from the limits of an engine
//	store.go     opening, transactions, errors
//	settings.go  the settings, and the folds by older ones
//	fold.go      commits: markers, shards, growths, series
//	record.go    growths; reset.go: resets and deletions; sweep.go: the removal of deleted counters
//	view.go      look-ups and lists
//	series.go    sums over time: ring, days, their sweep
//	index.go     ranges, grouped parts and remainders; groupdrop.go: the removal of groups
//	board.go     all sums of an index
//	journal.go   records and rows, and up to which time they are settled
//	sequence.go  values, each given once
//	deadletter.go  letters with their chunks, and references to them
//	worker.go    what aggregators report; expire.go: the removal of markers, references and workers
//	survey.go    shards as they are stored
package protocol
