package command

// ballastBytes is how much the ballast makes the heap look larger than it is.
const ballastBytes = 32 << 20

// ballast returns memory to hold while the process serves, and never to touch.
//
// Go collects garbage when the heap has doubled. The heap of a process that only answers requests
// is a few megabytes: it would collect ten times a second, at up to a sixth of the CPU time.
// Untouched pages take no memory of the system, but the collector counts them as heap. It waits for as
// much garbage, and ballastBytes more.
//
// debug.SetMemoryLimit does not serve here. It only adds collections when the heap comes near a limit;
// it never puts one off. To put them off, GOGC would have to be off, and then a heap near the limit is
// collected all the time. A limit also has to be chosen for each machine and load.
//
// It is nil if the operator has set the collector.
func ballast(lookup func(string) (string, bool)) []byte {
	for _, name := range []string{"GOGC", "GOMEMLIMIT"} {
		if _, ok := lookup(name); ok {
			return nil
		}
	}
	return make([]byte, ballastBytes)
}
