// Package countmill holds the words that every part of countmill shares: what a
// counter may be called, what an increment is, the limits of both, and the few
// errors that callers decide on.
//
// A counter is a named signed 64-bit sum; a counter nobody has incremented is 0.
// An increment adds a delta to one counter. Package publisher sends increments,
// package aggregator folds them into a store, package reader serves totals.
//
// This package imports only the standard library.
package countmill
