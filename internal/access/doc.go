// Package access says who may call what: bearer tokens, what each of them may do, and
// the file they are kept in. It knows no HTTP; package api asks it.
//
// # The file
//
// One JSON object a line; blank lines and lines that begin with # are skipped.
//
//	{"name":"web","hash":"sha256:9f86...","scopes":["publish"],"prefixes":["page:"],"expires":"2027-01-01T00:00:00Z"}
//
//	name      who it is: 1 to 64 of A-Z a-z 0-9 . _ -; several lines may have the same
//	hash      sha256: and the SHA-256 of the token, as 64 hex digits
//	scopes    publish, read, metrics, admin: one or more, none of which implies another
//	prefixes  what names of counters must begin with; all counters where it is absent
//	expires   RFC 3339; never where it is absent
//
//	increments_per_second, bytes_per_second  the most that the token may count in one process
//	new_counters_per_hour                    and the most new names, kept for an hour
//
// Two lines with one name are two tokens of one caller: that is how a token is replaced
// without a gap, and why the ids of requests (which hold the name) survive it.
//
// # Why no slow hash
//
// bcrypt and its kin make guessing dear where secrets are guessable. A token here is
// 256 random bits, made by New and by nobody's head: who has the file would have to try
// 2^255 of them, at any speed. A slow hash would only let strangers burn our CPU, one
// request at a time.
package access
