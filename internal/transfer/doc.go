// Package transfer reads and writes increments as the rows of a file, CSV or NDJSON, and
// cuts such a file into the blocks that are sent as one request each.
//
// # Rows
//
// A row is a line: no field can hold the end of one, as names and ids hold no control
// characters. Lines end with \n or \r\n, the last one with either or nothing. Blank lines
// are no rows, and a byte order mark before the first line is skipped.
//
// NDJSON is what POST /v1/increments takes, judged by the same code. CSV begins with a
// line that names its columns: counter and delta, and perhaps id and time, in any order.
// An empty id or time is none. A delta is an integer as in JSON.
//
// # Blocks
//
// A block's number and the file's hash are its name for ever: who sends it again, after a
// crash or a year, must send the same rows under that name. So where a block ends is
// decided by the bytes of the file alone, never by a setting, by the clock, or by which
// rows are good, and [Cut] names the rule. TestCutIsFrozen holds it.
package transfer
