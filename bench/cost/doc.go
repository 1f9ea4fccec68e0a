// Package cost counts what increments and totals cost a store: entities written and read,
// commits and messages. It has no code of its own; its tests are the measurements.
//
//	go test ./cost                              small runs, held to the targets
//	go test ./cost -v -full -json FILE          the published figures, and a file for plots
//
// The publishers, aggregators and readers are the real ones with their defaults; the bus
// and the store are in memory, count what reaches them, and take as long for a call as
// Google's do. All of it runs in virtual time, so that neither the machine nor what else
// runs on it changes a figure: two publishers that linger for 250 ms do so on any machine.
// Each run ends with a comparison of every total with what was sent.
package cost
