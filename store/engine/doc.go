// Package engine is the contract of a database below countmill's store: rows of named numbers, changed in
// commits. An engine knows no counters. The store gives it the table of its kinds ([Kinds]) when it opens it. Folds,
// resets, sweeps, series, indexes and the journal exist once, above this package.
//
//	roles -> store -> engine <- memory, and one package for each database
//
// A [Key] names a row, a [Change] changes one, and a [Commit] applies changes together. A [View] reads at one moment. A
// [Tx] reads rows by their keys and then changes rows. [Limits] are facts about the database: the store chooses the
// cheaper form of a protocol by them. Package enginetest tests every promise below. Package memory is the reference.
//
// # Commits
//
//   - C1. A commit is whole: a view, and the state after a crash, has all of its changes or none. After nil it is
//     durable, unless it was Soft. Folds rely on it: a marker and its sums come together.
//   - C2. A commit depends on no rows but those of its Inserts, its Updates and Require. Their answers hold in the
//     moment in which it takes effect. The store refuses folds by old rules with Require.
//   - C3. Additions never saturate or wrap. A sum is exact in every order and grouping, also across restarts. An engine
//     may refuse a change beyond 2^94.
//   - C4. The engine never repeats a commit. Only a listed error means that nothing was applied. After any other error
//     the caller inserts the same rows again, and ErrExists answers the question. Markers rely on it.
//   - C5. A Soft commit survives a crash if a later commit does, also if a process outlives the crash and commits after it. So without
//     Limits.Exclusive every commit is durable. Growths rely on it: no fold survives without the record that names its shard.
//
// # Transactions
//
//   - T1. Every row that a Tx asked for, present or absent, is the same in the moment in which its changes take
//     effect. Otherwise the answer is ErrConflict, and nothing is applied. An engine does not answer ErrConflict unless
//     somebody has written one of these rows, perhaps without a difference. Resets, sweeps, moves of series, ranges of indexes and sequences rely on it. T1 is more
//     than serialisability, which puts a blind addition to an absent row "later".
//   - T2. A Tx has no scan, so no engine has to guard a gap. A caller that needs a range asks for a row that every writer
//     of the range changes too, and then opens a View: a sweep lists the days of a counter so.
//   - T3. Every answer rests on durable rows: also ErrExists, also an error of the function, and also if nothing is written. A
//     repeat of a reset relies on it when it finds the marker of the first attempt.
//   - T4. The function runs at most once, under no lock of the process. It may open views. It begins no Commit and no
//     Transact: in a database with locks they would wait for it, and it for them.
//   - T5. All reads of a Tx are of one moment, so its function never fails because of two.
//
// An addition of a Tx to a row that it did not ask for is blind, as in a Commit.
//
// # Views and moments
//
//   - V1. A view has everything that was acknowledged before its first call.
//   - V2. Of two views, the one with the later moment has everything that the other has. Caches rely on it.
//   - V3. All calls of a view read at its moment, or answer ErrExpired.
//   - V4. Everything in a view is durable, but for Soft commits: a total that was shown stays.
//   - V5. A view whose moment is not before that of a call of Moment has everything that was acknowledged before the call.
//   - V6. Moments rise, also over a clean restart. After a crash they may be some seconds behind. The store names the last moment
//     that it has written (Resume), and all later ones come after it. The order of the journal relies on it.
//
// # Rows that expire
//
//   - E1. Identity is the Key alone. An Insert finds an existing row whatever its Due is. Deduplication relies on it: a
//     copy of a part may carry another time.
//   - E2. Without Limits.Expires the store names the horizon, because only the store knows which ids it still accepts, and has written
//     that down before. With Limits.Expires no row goes before its Due.
//   - E3. Due misses no row that is due when it is called. It may list other rows.
//
// # Classes
//
// The class of a kind bounds its changes, so an engine can store each class in its own way:
//
//	        Insert  Upsert, Update  Delete  Unset, Set  Max, Add  Data  scans
//	Once    yes     no              no      Set         no        yes   no
//	Sums    no      yes             yes     yes         yes       no    yes
//	Docs    yes     yes             yes     yes         no        yes   yes
package engine
