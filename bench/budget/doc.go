// Package budget holds --count-within against the best that can be had with fixed lingers, in
// virtual time. It has no code of its own; its tests are the measurement.
//
//	go test ./budget                            a few random loads, held to the targets
//	go test ./budget -v -loads 200              the published figures
//
// The publishers and aggregators are the real ones; the bus and the store are in memory and
// take as long for a call as is drawn for it. A load is drawn from its seed: how many publishers
// and aggregators there are and how far their clocks are off, how many counters, how often which
// is incremented, by steps and spikes, and what bus and store take, slow phases included. Each
// load is run once with the budget, and for every pair of a grid of lingers that can be the best
// one. How old each increment is when a commit has it is known exactly.
package budget
