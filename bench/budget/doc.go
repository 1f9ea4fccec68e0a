// Package budget compares --count-within with the best fixed lingers, in virtual time. It has no code
// of its own; its tests are the measurement.
//
//	go test ./budget                            a few random loads, compared with the targets
//	go test ./budget -v -loads 200              the published figures
//
// The publishers and aggregators are the real ones. The bus and the store are in memory, and each call
// takes a drawn time. A load is drawn from its seed: the number of publishers and aggregators and the
// errors of their clocks, the number of counters and the frequency of each, with steps and spikes, and
// the latency of bus and store, including slow phases. Each load is run once with the budget, and once
// for every pair of a grid of lingers that can be the best one. The age of each increment at its commit
// is known exactly.
package budget
