// Package appengine reads the counters that the code of Google's article on sharding counters
// (App Engine, 2008 to 2013) keeps in Datastore. It only reads.
//
// The article's code keeps a counter as shards, entities with a count each, in one of
// these layouts:
//
//	layout  written by          kind                  key              a shard's counter is
//	python  Python, ndb         GeneralCounterShard   shard-NAME-7     in the key
//	db      Python, db (2008)   GeneralCounterShard   NAME7            the property name
//	java    Java, low level     CounterShard_NAME     7                in the kind
//	jdo     Java, JDO           GeneralCounterShard   a number         the property counterName
//	go      Go, as printed      GeneralCounterShard   shard7           not to be told
//	go      Go, mended          GeneralCounterShard   NAME-shard7      the property Name
//	simple  each, first version SimpleCounterShard    any              there is one
//
// The Go code as the article prints it never sets Name, and has shard7 for all of its
// counters: what was counted for one of them lies in one sum with all others. Only that
// grand total can be adopted.
//
// Shards are found by kind, never by the number of shards that a counter is configured to
// have: shards beyond a number that was lowered by hand were counted as well. The kinds of
// java are found by a query of __kind__, which the Firestore emulator has not.
//
// A total is the sum of shards that were read one after the other. While the source counts,
// it is not what the counter was at any moment, but never less than at the beginning nor more
// than at the end, if nothing is subtracted.
package appengine
