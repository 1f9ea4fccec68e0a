// Package emulator runs Google's emulators for tests, and for nothing else: a test
// holds that only test files import it.
//
// An emulator is started when the first test of a package asks for it, serves all tests
// of the package on a free loopback port, and ends with the test process, however that
// ends: a guard beside it kills it when the test process has gone. Tests keep out of
// each other's way by a [Project] of their own each.
//
//	func TestMain(m *testing.M) { goleak.VerifyTestMain(emulator.Around(m)) }
//
// Where an emulator comes from, the first that is there:
//
//   - a variable, COUNTMILL_TEST_FIRESTORE_EMULATOR, COUNTMILL_TEST_DATASTORE_EMULATOR or
//     COUNTMILL_TEST_PUBSUB_EMULATOR: HOST:PORT of a running emulator, or the path of its jar;
//   - the Google Cloud SDK whose gcloud is on the PATH.
//
// Each may take 512 MiB, or what COUNTMILL_TEST_EMULATOR_HEAP says as Java writes it.
//
// memcached is the real one of the PATH, a server of its own for each test that asks.
//
// PostgreSQL is the one of the PATH, or the newest of /usr/lib/postgresql, one server for all tests of a package. As root
// the user postgres runs it. COUNTMILL_TEST_POSTGRES is the URL of a running one.
//
// NATS is the nats-server of the module tools/nats, which is built at the first call. Each test has a server of its own.
//
// Without one, or without Java, the test is skipped and names the missing program. With
// COUNTMILL_TEST_REQUIRE=emulators it fails instead. A variable that is "off" skips the
// tests of that emulator in any case.
package emulator
