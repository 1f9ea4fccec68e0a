package emulator

import (
	"strconv"
	"testing"
)

// Firestore returns HOST:PORT of Google's Firestore emulator in Datastore mode: the one
// that behaves like the service, except that it enforces no limits.
func Firestore(t testing.TB) string {
	t.Helper()
	return firestore.serve(t)
}

// Datastore returns HOST:PORT of Google's older Datastore emulator, which ignores
// property transforms and takes 25 entities a transaction.
func Datastore(t testing.TB) string {
	t.Helper()
	return datastore.serve(t)
}

var firestore = newFirestore()

func newFirestore() *program {
	return &program{
		name:     "the Firestore emulator",
		variable: "COUNTMILL_TEST_FIRESTORE_EMULATOR",
		jar:      "platform/cloud-firestore-emulator/*.jar",
		args: func(jar string, port int) []string {
			return []string{"-Duser.language=en", "-cp", jar, "com.google.cloud.datastore.emulator.firestore.CloudFirestore", "start",
				"--host=127.0.0.1", "--port=" + strconv.Itoa(port), "--database-mode=datastore-mode"}
		},
	}
}

// OwnFirestore starts a Firestore emulator that ends with the test.
func OwnFirestore(t testing.TB) *Instance {
	t.Helper()
	return own(t, newFirestore())
}

var datastore = &program{
	name:     "the Datastore emulator",
	variable: "COUNTMILL_TEST_DATASTORE_EMULATOR",
	jar:      "platform/cloud-datastore-emulator/CloudDatastore.jar",
	args: func(jar string, port int) []string {
		return []string{"-Duser.language=en", "-cp", jar, "com.google.cloud.datastore.emulator.CloudDatastore", "start",
			"--host=127.0.0.1", "--port=" + strconv.Itoa(port), "--store_on_disk=False", "--consistency=1.0"}
	},
}
