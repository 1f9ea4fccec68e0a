// Package board orders counters by their sums. A Board has the best counters of one look at all sums of
// an index, and can prove that they still are the best.
//
// # Two moments
//
// A scan looks at all sums at one moment, and the board keeps the best Size of them, its candidates. An
// answer reads the candidates again at a later moment, in one view, and orders them by their sums
// of that moment. So the totals of an answer are exact as of the view, and the choice of names is complete as of
// the scan: a counter that rose since may be missing.
//
// # Why an answer that says complete is complete
//
// Let c be a counter outside the candidates, s its sum at the scan, and t its sum at the answer's
// view. Let
//
//	floor   the largest CounterSum.Most that the scan found outside the candidates
//	P       Rise.Most between the scan and the view: everything that raised any sum of the index
//
// Then t <= max(floor, 0) + P, because
//
//   - s <= floor, if the scan found c.
//   - The sum of c was 0 if the scan did not find c: it was never incremented, its total of 0 was
//     deleted, or it has no bucket in the window. The window of a deleted counter is hidden, and one increment
//     shows all of it again. So the scan keeps no hidden counter as a candidate, and raises the floor instead.
//   - From s to t only these changes raise the sum: positive deltas of folds, and, of a window, positive
//     buckets of folds. A reset that ends a negative total raises it by the amount below 0; a
//     piece of an index raises the total of a group. The store adds all of these up, in P. Two resets
//     cannot raise a sum twice, because each adds its own part to P.
//   - Everything else lowers the sum or leaves it: negative deltas, resets of positive totals, deletions,
//     sweeps.
//   - The first minutes of a window that slides drop out of it. Whatever drops out, the rest at the scan was at most
//     CounterSum.Most, which is the largest sum of the window's last minutes.
//   - A counter that had overflowed had no sum, and a negative delta can give it any. The floor is then the
//     largest int64.
//   - A counter that overflows after the scan has no total, and no place in the order.
//
// So a full answer whose last total is above max(floor, 0) + P has the names of the best counters at
// its view, among all counters of the index. It must be above: a counter with the same total and an
// earlier name would come before the last one.
//
// If no sum has changed since the scan, the order is that of the scan. A full answer is then complete, and
// so is a shorter one if all counters are candidates. This does not hold for a window that slides.
//
// Where other processes fold, P is unknown, and no answer is complete.
package board
