// Package appengine reads counters of the code in Google's article on sharding counters (App Engine,
// 2008 to 2013) from Datastore. It only reads.
//
// The article's code keeps a counter as shards, which are entities with a count each, in one of these
// layouts:
//
//	layout  written by          kind                  key              a shard's counter is
//	python  Python, ndb         GeneralCounterShard   shard-NAME-7     in the key
//	db      Python, db (2008)   GeneralCounterShard   NAME7            the property name
//	java    Java, low level     CounterShard_NAME     7                in the kind
//	jdo     Java, JDO           GeneralCounterShard   a number         the property counterName
//	go      Go, as printed      GeneralCounterShard   shard7           unknown
//	go      Go, corrected       GeneralCounterShard   NAME-shard7      the property Name
//	simple  each, first version SimpleCounterShard    any              the only one
//
// The Go code as printed never sets Name, and uses shard7 for all of its counters: one sum contains the
// increments of all of them. Only that grand total can be adopted.
//
// Shards are found by kind, not by the configured number of shards: shards beyond a number that
// somebody lowered were counted as well. The kinds of java are found by a query of __kind__, which the
// Firestore emulator does not support.
//
// A total is the sum of shards that were read one after the other. While the source still counts, it is
// not the counter's value at any moment. If nothing is subtracted, it is at least the value at the
// beginning and at most the value at the end.
package appengine
