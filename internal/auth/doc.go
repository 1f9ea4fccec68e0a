// Package auth decides which caller may make which call: it has bearer tokens, their rights, and the
// file that contains them. It does not know HTTP; package httpserver calls it.
//
// # The file
//
// One JSON object a line. Blank lines and lines that begin with # are skipped.
//
//	{"name":"web","hash":"sha256:9f86...","scopes":["publish"],"prefixes":["page:"],"expires":"2027-01-01T00:00:00Z"}
//
//	name      the caller: 1 to 64 of A-Z a-z 0-9 . _ -; several lines may have the same
//	hash      sha256: and the SHA-256 of the token, as 64 hex digits
//	scopes    publish, read, metrics, admin: one or more, none of which implies another
//	prefixes  names of counters must begin with one of them; all counters if it is absent
//	expires   RFC 3339; never if it is absent
//
//	increments_per_second, bytes_per_second  the most that the token may count in one process
//	new_counters_per_hour                    and the most new names, kept for an hour
//	public    true: everybody may see badges of the counters under prefixes
//
// Two lines with one name are two tokens of one caller. So a token can be replaced without a gap, and
// ids of requests, which contain the name, stay the same.
//
// # Why no slow hash
//
// A slow hash such as bcrypt makes guessing expensive if secrets are guessable. A token here is 256
// random bits from New; no person chose it. An attacker with the file would have to try 2^255 of
// them, at any speed. A slow hash would only let strangers use up the CPU, one request at a time.
package auth
