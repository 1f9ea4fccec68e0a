// Package engine is the contract of a database below countmill's store: rows of named numbers, changed in
// commits. An engine knows no counters. The store gives it the table of its kinds ([Kinds]) when it is opened; folds,
// resets, sweeps, series, indexes and the journal exist once, above this package.
//
//	roles -> store -> engine <- memory, and one package for each database
//
// A [Key] names a row, a [Change] changes one, and a [Commit] applies changes together. A [View] reads at one moment. A
// Transact reads rows and changes rows. [Limits] are facts about the database, and no names of features: the store
// chooses the cheaper form of a protocol by them. Package enginetest tests every promise below; package memory is the
// engine that is simple enough to be right at a glance.
//
// # Commits
//
//   - C1. A commit is whole: everybody and every crash sees all of its changes or none. After nil it is durable, unless it
//     was Soft. Folds rely on it: a marker and its sums are one.
//   - C2. A commit reads nothing but the rows of its Inserts and Updates, and those of Require. These answers hold
//     in the moment in which it takes effect. The store refuses folds by old rules with Require.
//   - C3. Additions commute and never saturate or wrap: a sum is exact in every order and grouping, also
//     across restarts. An engine may be stuck beyond 2^94, and then refuses.
//   - C4. The engine never repeats a commit. Only a listed error says that nothing was applied; after any other
//     one the caller inserts the same rows again. Aggregators rely on it with every marker.
//   - C5. A Soft commit survives if a later one does. Growths rely on it: no fold survives without the record that
//     names its shard.
//
// # Transactions
//
//   - T1. Every row that a Tx asked for, present or absent, is the same in the moment in which its changes take
//     effect. Otherwise the answer is ErrConflict, and nothing is applied. ErrConflict without any change of these rows is
//     wrong; a database that waits answers ErrContended. Resets, sweeps, moves of series, pieces of indexes and sequences rely on it.
//     It is more than serialisability, which would let a blind addition to an absent row come "later".
//   - T2. A Tx reads rows by their keys, and has no scan: no engine needs to guard a gap. A caller that needs a range
//     opens a View in do, and gets a row of whose changes it would hear: a sweep lists the days of a counter so.
//   - T3. What a call answers is durable, also if it writes nothing, and also after ErrExists: a repeat of a reset finds the
//     marker of the first try, and may acknowledge it.
//   - T4. do runs at most once, and under no lock of the process: it may open views. It begins no Commit and no
//     Transact, for which a database with locks would wait for ever.
//   - T5. All reads of a Tx show one moment, so an error of do never comes from two.
//
// A blind addition of a Transact, to a row that it did not ask for, is like one of a Commit.
//
// # Views and moments
//
//   - V1. A view has everything that was acknowledged before its first call. It has whole commits only.
//   - V2. Of two views, the one with the later moment has everything that the other one has. Caches compare totals
//     by it.
//   - V3. All calls of a view read at its moment, or answer ErrExpired.
//   - V4. What a view shows is durable, but for what Soft commits changed: a total that was shown stays.
//   - V5. A view with a moment that is not before Moment has everything that was acknowledged before that call of Moment.
//   - V6. Moments rise, also over restarts, and after Resume they are later than what it named. The keys of the journal
//     rely on it.
//
// # Rows that expire
//
//   - E1. Identity is the Key alone. An Insert finds an existing row whatever its Due is. Deduplication rests on it: a copy of
//     a part may come with another time.
//   - E2. Without Limits.Expires the caller says the horizon, because only it knows what it still accepts; the removal and
//     the changes, in which it writes that down, are one. With Limits.Expires no row goes before its Due.
//   - E3. Due is a hint. It misses no row that was due when it was called, and may list others.
//
// # Classes
//
// [Once], [Sums] and [Docs] say how rows of a kind change, so that an engine may lay each out in its own way:
//
//	        Insert  Upsert, Update  Delete  Unset, Set  Max, Add  Data  scans
//	Once    yes     no              no      Set of Due  no        yes   no
//	Sums    no      yes             yes     yes         yes       no    yes
//	Docs    yes     yes             yes     yes         no        yes   yes
package engine
