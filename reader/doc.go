// Package reader serves totals.
package reader
