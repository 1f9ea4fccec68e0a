// Package add holds Go benchmarks of a single call that adds one to a counter in this
// process: publisher.Add and Counter.Add beside the metrics libraries that people use for
// it. It has no code of its own.
//
// What the calls promise differs: countmill's is on its way to a store, the others are
// read by whoever scrapes the process and are gone with it.
package add
