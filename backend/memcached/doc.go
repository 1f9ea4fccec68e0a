// Package memcached is a cache of totals that many readers share: memcached, through
// gomemcache.
//
// # What is kept
//
// Each value begins with a checksum by [Config].Key, over all that follows: a value with a flipped
// bit, of another database, or of over 1 KiB is an error, and the next Set replaces it.
//
// A total is one item. Its key is a hash of the counter's name, as names have up to 500
// bytes of any kind; the name itself stands in the value and is compared on reading, as
// gomemcache takes an answer for another key. A total is set only where memcached has
// none with a later AsOf (gets, then cas or add), so a slow reader never puts an old
// total over a newer one. memcached keeps time in whole seconds: an item lives its ttl at
// least and three seconds longer at most. The reader judges a total's age by its AsOf.
//
// # Servers
//
// Names are resolved when first needed, again every [Config].ResolveEvery, and soon after
// a server failed. A name with several addresses, such as a headless service of
// Kubernetes, is several servers; where it has IPv4 addresses only those count, so that
// localhost is one. A counter belongs to the server that wins its rendezvous: when a
// server comes or goes, only the counters move that it wins or has won. While readers
// disagree about the servers, each is still served nothing older than it asked for.
//
// # When it fails
//
// Every error is returned and costs the reader a read of its store; no total is ever wrong
// because of one. Nothing here needs a restart of this process.
//
//	server restarted, flush_all    all totals and locks are gone: misses, until they
//	                               are read and set again. Connections that the server
//	                               closed are dropped together and tried once more
//	eviction                       a total is a miss; a lock is free, so two processes
//	                               may refresh one counter at once
//	server stopped or cut off      an error within Timeout, for its counters only
//	name does not resolve          the addresses it had are kept; without any, its
//	                               counters are errors and the others go on
//	outcome unknown                a set is repeated by whoever reads next; a lock may
//	                               stay until its ttl has passed
//	answers mixed up               an error, and the idle connections are closed
//	a value that is not ours       an error, until a set has replaced it
package memcached
