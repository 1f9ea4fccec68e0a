// Package e2e holds the built countmill to its promises where its roles are processes
// of their own, on Google's emulators and a real memcached: kills, pauses, outages and
// restarts, with every increment of every load accounted for. It has tests only.
//
// Emulators come from [github.com/countmill/countmill/internal/testing/emulator], which says how
// to have them; without them the tests are skipped. The tests mostly wait, so they run at
// once, as many as there are processors; each has a project of its own, and those that
// stop emulators have emulators of their own.
//
// Variables make them longer than every day needs: COUNTMILL_TEST_OUTAGE, how long servers
// are away (20s); COUNTMILL_TEST_KILLS, how often an aggregator is killed (3);
// COUNTMILL_TEST_OVERLOAD, for how long processes are offered too much (3s), and
// COUNTMILL_TEST_OVERLOAD_TIMES, how many times what they take that has to be;
// COUNTMILL_TEST_CHAOS, for how long all of that happens at once (20s); and COUNTMILL_TEST_UP_KILLS,
// how often countmill up is (20). COUNTMILL_TEST_SEED repeats what the last two have drawn,
// which is not all: how fast processes are is nobody's choice. COUNTMILL_TEST_OVERLAY builds
// countmill with a mistake in it, and COUNTMILL_TEST_PLANTED does so with some that chaos and
// kills have to find, each within that many runs.
package e2e
