package appengine

import (
	"fmt"
	"testing"

	"cloud.google.com/go/datastore"
)

// A writer writes to one namespace of an emulator as the code of the article does, in each of its languages: with
// the same kinds, keys and properties.
type writer struct {
	t         testing.TB
	client    *datastore.Client
	namespace string
}

// newWriter connects to the emulator at host.
func newWriter(t testing.TB, host, project, namespace string) *writer {
	t.Helper()
	client, err := datastore.NewClient(t.Context(), project, at(host)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return &writer{t, client, namespace}
}

// Put writes one entity: under name, or under id if name is empty.
func (w *writer) Put(kind, name string, id int64, properties ...datastore.Property) {
	w.t.Helper()
	key := &datastore.Key{Kind: kind, Name: name, ID: id, Namespace: w.namespace}
	list := datastore.PropertyList(properties)
	if _, err := w.client.Put(w.t.Context(), key, &list); err != nil {
		w.t.Fatal(err)
	}
}

// indexed and unindexed return properties as the languages' libraries write them.
func indexed(name string, value any) datastore.Property {
	return datastore.Property{Name: name, Value: value}
}

func unindexed(name string, value any) datastore.Property {
	return datastore.Property{Name: name, Value: value, NoIndex: true}
}

// Python writes the result of the article's increment(name): a shard for each count.
func (w *writer) Python(name string, counts ...int64) {
	w.t.Helper()
	w.Put("GeneralCounterShardConfig", name, 0, indexed("num_shards", int64(20)))
	for i, n := range counts {
		w.Put("GeneralCounterShard", fmt.Sprintf("shard-%s-%d", name, i), 0, indexed("count", n))
	}
}

// DB writes the result of the article's first version, on google.appengine.ext.db.
func (w *writer) DB(name string, counts ...int64) {
	w.t.Helper()
	w.Put("GeneralCounterShardConfig", name, 0, indexed("name", name), indexed("num_shards", int64(20)))
	for i, n := range counts {
		w.Put("GeneralCounterShard", fmt.Sprintf("%s%d", name, i), 0, indexed("name", name), indexed("count", n))
	}
}

// Java writes the result of new ShardedCounter(name).increment() on the low-level API. The record with
// the number of shards exists only after shards were added.
func (w *writer) Java(name string, counts ...int64) {
	w.t.Helper()
	if len(counts) > 5 {
		w.Put("Counter", name, 0, unindexed("shard_count", int64(len(counts))))
	}
	for i, n := range counts {
		w.Put("CounterShard_"+name, fmt.Sprint(i), 0, unindexed("count", n))
	}
}

// JDO writes the same on JDO, with keys whose numbers Datastore chose.
func (w *writer) JDO(name string, firstID int64, counts ...int64) {
	w.t.Helper()
	w.Put("Counter", "", firstID, indexed("counterName", name), indexed("shardCount", int64(len(counts))))
	for i, n := range counts {
		w.Put("GeneralCounterShard", "", firstID+1+int64(i), indexed("counterName", name), indexed("shardNumber", int64(i)), indexed("count", n))
	}
}

// Go writes the result of the article's Increment as printed, for any names.
func (w *writer) Go(counts ...int64) {
	w.t.Helper()
	w.Put("GeneralCounterShardConfig", "votes", 0, indexed("Shards", int64(20)))
	for i, n := range counts {
		w.Put("GeneralCounterShard", fmt.Sprintf("shard%d", i), 0, indexed("Name", ""), indexed("Count", n))
	}
}

// GoCorrected writes the same with the name in key and property.
func (w *writer) GoCorrected(name string, counts ...int64) {
	w.t.Helper()
	for i, n := range counts {
		w.Put("GeneralCounterShard", fmt.Sprintf("%s-shard%d", name, i), 0, indexed("Name", name), indexed("Count", n))
	}
}

// Simple writes the first version of the languages: Python and Java, Go, JDO.
func (w *writer) Simple(python, golang, jdo int64) {
	w.t.Helper()
	w.Put("SimpleCounterShard", "0", 0, indexed("count", python))
	w.Put("SimpleCounterShard", "shard1", 0, indexed("Count", golang))
	w.Put("SimpleCounterShard", "", 7, indexed("shardNumber", int64(2)), indexed("count", jdo))
}
