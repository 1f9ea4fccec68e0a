// Package e2e holds the built countmill to its promises where its roles are processes
// of their own, on Google's emulators and a real memcached: kills, pauses, outages and
// restarts, with every increment of every load accounted for. It has tests only.
//
// Emulators come from [github.com/countmill/countmill/internal/emulator], which says how
// to have them; without them the tests are skipped. The tests run one after another: they
// measure seconds, and stop what others would need.
package e2e
