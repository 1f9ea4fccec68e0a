// Package transfer reads and writes increments as the rows of a file, CSV or NDJSON. It cuts such a
// file into blocks, each of which is sent as one request.
//
// # Rows
//
// A row is a line. No field can contain the end of one, because names and ids contain no control
// characters. Lines end with \n or \r\n, the last one with either or nothing. Blank lines are not rows.
// A byte order mark before the first line is skipped.
//
// NDJSON has the format of POST /v1/increments, and is checked by the same code. CSV begins with a line
// that names its columns: counter and delta, and perhaps id and time, in any order. An empty id or time
// means none. A [Form] says what other columns mean.
//
// The separator, and the forms of deltas and times are recognised by tables. A value
// in none of them, or with two meanings, is an error. The increment of a row is a function of the file and
// its Form.
//
// # Blocks
//
// A block's name is the file's hash, its Form's, and the block's number. Whenever somebody sends it again, after a
// crash or a year, the same rows must be sent under that name. So the text of the file and its Form alone decide
// where a block ends. Settings, the clock and bad rows have no influence. [Cut] is the version of the
// rule, and TestCutIsFrozen checks it.
package transfer
