package command

// spareBytes is how much the heap is made to look larger than it is.
const spareBytes = 32 << 20

// spareHeap returns memory to hold on to while requests are answered, and never to touch.
// Go collects garbage when the heap has doubled. That of a process which only answers requests
// is a few megabytes, so it would collect ten times a second, at up to a sixth of the CPU
// time. What is never touched is no memory to the system, but heap to the collector: it waits
// until there is as much garbage, and spareBytes more. Nil where the operator has said what
// the collector is to do.
func spareHeap(lookup func(string) (string, bool)) []byte {
	for _, name := range []string{"GOGC", "GOMEMLIMIT"} {
		if _, ok := lookup(name); ok {
			return nil
		}
	}
	return make([]byte, spareBytes)
}
