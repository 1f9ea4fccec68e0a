// Package memcached is a cache of totals that many readers share. It talks to memcached through
// gomemcache.
//
// # Values
//
// Each value begins with a checksum over the rest of it, made with [Config].Key. A value with a flipped
// bit, a value of another database, and a value over 1 KiB are errors. The next Set replaces them.
//
// A total is one item. Its key is a hash of the counter's name, because names have up to 500 bytes of
// any kind. The value contains the name, and Get compares it, because gomemcache accepts an answer for
// another key. Set writes a total only if memcached has none with a later AsOf (gets, then cas or add).
// So a slow reader never replaces a newer total by an older one. memcached keeps time in whole seconds:
// an item lives for its ttl and up to three seconds more. The reader judges a total's age by its AsOf.
//
// # Servers
//
// Each new connection resolves the name of its server. Name each server: of a name with several addresses
// connections would go to any of them.
//
// A counter belongs to the server with the highest rendezvous hash. So with one server more or less, only
// the counters that it wins or had won move. Readers may briefly disagree about the servers. Even then
// each of them serves nothing older than it was asked for.
//
// # When it fails
//
// Every error is returned, and costs the reader a read of its store. No total is ever wrong because of
// an error. No failure requires a restart of this process.
//
//	server restarted, flush_all    all totals and locks are gone: misses, until they
//	                               are read and set again. Connections that the server
//	                               closed are dropped together and tried once more
//	eviction                       a total is a miss; a lock is free, so two processes
//	                               may refresh one counter at once
//	server stopped or cut off      an error within Timeout, for its counters only
//	name does not resolve          its open connections stay in use; without any, its
//	                               counters are errors and the others go on
//	outcome unknown                the next reader repeats a set; a lock may stay
//	                               until its ttl has passed
//	answers mixed up               an error, and the idle connections are closed
//	a value that is not ours       an error, until a set has replaced it
package memcached
