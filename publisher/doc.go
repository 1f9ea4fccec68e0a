// Package publisher coalesces increments and sends them over a bus.
package publisher
