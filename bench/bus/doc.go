// Package bus has only benchmarks: the same increments over each bus, into the same kind of store.
package bus
