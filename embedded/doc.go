// Package embedded runs all of countmill inside your process: counters in a directory, counted
// exactly once, that survive kill -9 and power cuts. It is `countmill up` as a library, made of the
// same parts.
//
//	your process
//	+-------------------------------------------------------------+
//	|  Add, Publish --> publisher --> aggregator --> directory    |
//	|  Handler      -->     |                            |        |
//	|  Total, Watch <-- reader <-------------------------+        |
//	+-------------------------------------------------------------+
//
//	call            returns                          lost by kill -9
//	Publish         when the increments are on disk  nothing after nil
//	Flush, Close    when all added before are        nothing after nil
//	Add             at once                          the increments of the last moments: some
//	                                                 milliseconds if the disk is idle, up to
//	                                                 two seconds under load, more if the disk
//	                                                 does not answer
//
// A total contains every increment that Publish or Flush has confirmed before the call of Total.
//
// One process opens a directory at a time; another one gets an error from Open. To count from
// several processes, mount Handler and use package client in the others, or run `countmill up`.
//
// Errors match the sentinels of package countmill with errors.Is:
//
//	ErrInvalid         a name, a delta, an id or a time is not allowed: nothing was counted
//	ErrIDsReused       ids came with other increments before: all others were counted
//	ErrOverloaded      too much waits to be written: nothing was counted, repeat it later
//	ErrUnavailable     nothing was counted, or the store cannot be read: repeat it later
//	ErrClosed          the DB is closed, or has failed: nothing was counted
//	ErrOutcomeUnknown  maybe counted: repeat it with the same ids only
//	ErrOverflow        the total does not fit 64 bits
//
// Open bounds the memory that waiting increments take as `countmill up` does: docs/reference/limits.md
// has the numbers.
package embedded
