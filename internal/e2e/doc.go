// Package e2e holds the built countmill to its promises where its roles are processes
// of their own, on Google's emulators and a real memcached: kills, pauses, outages and
// restarts, with every increment of every load accounted for. It has tests only.
//
// Emulators come from [github.com/countmill/countmill/internal/emulator], which says how
// to have them; without them the tests are skipped. The tests mostly wait, so they run at
// once, as many as there are processors; each has a project of its own, and those that
// stop emulators have emulators of their own.
//
// Variables make them longer than every day needs: COUNTMILL_TEST_OUTAGE, how long servers
// are away (20s), and COUNTMILL_TEST_KILLS, how often an aggregator is killed (3).
package e2e
