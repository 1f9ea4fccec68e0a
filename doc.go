// Package countmill has the types, limits and errors that every part of countmill shares: the
// rules for the name of a counter, the increment, and the errors that callers act on.
//
// A counter is a named signed 64-bit sum; a counter that was never incremented is 0. An increment
// adds a delta to one counter. Package publisher sends increments, package aggregator folds them
// into a store, and package reader serves totals.
//
// This package imports only the standard library.
package countmill
