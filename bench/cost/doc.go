// Package cost measures the cost of increments and totals in a store: entities written and read,
// commits and messages. It has no code of its own; its tests are the measurements.
//
//	go test ./cost                              small runs, compared with the targets
//	go test ./cost -v -full                     the published figures
//
// The publishers, aggregators and readers are the real ones with their defaults. The bus and the store
// are in memory, count their calls, and each call takes as long as Google's services do. All of it runs
// in virtual time, so neither the machine nor its other work changes a figure: two publishers that
// linger for 250 ms do so on any machine. Each run ends with a comparison of every total with the sent
// increments.
package cost
