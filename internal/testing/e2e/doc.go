// Package e2e tests the built countmill with its roles as separate processes, on Google's emulators and
// a real memcached. It kills and suspends processes, and stops and restarts servers. Every increment of
// every load is accounted for. It contains tests only.
//
// Emulators come from [github.com/countmill/countmill/internal/testing/emulator], which says how to
// install them; without them the tests are skipped. The tests mostly wait, so as many run at once as
// there are processors. Each has a project of its own. Tests that stop emulators have emulators of
// their own.
//
// Variables make the tests longer than a daily run needs:
//
//	COUNTMILL_TEST_OUTAGE           how long servers are unavailable (20s)
//	COUNTMILL_TEST_OVERLOAD         how long processes are overloaded (3s)
//	COUNTMILL_TEST_CHAOS            how long all of that happens at once (20s)
//	COUNTMILL_TEST_UP_KILLS         how often countmill up is killed (20)
//	COUNTMILL_TEST_SEED             repeats the random draws of the last three; the speed of processes
//	                                still varies
//	COUNTMILL_TEST_OVERLAY          builds countmill with a bug in it
//	COUNTMILL_TEST_PLANTED          does so with several bugs, each of which chaos and kills must find
//	                                within that many runs
package e2e
