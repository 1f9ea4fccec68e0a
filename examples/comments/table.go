package main

import (
	"encoding/json"
	"errors"

	"github.com/cockroachdb/pebble/v2"
)

// A table keeps comments in the order of their keys. It knows no offset and no count: a page is a seek to
// a key and a few steps from there.
type table struct{ db *pebble.DB }

// A stored comment has its key.
type stored struct {
	Key string `json:"key"`
	comment
}

func openTable(dir string) (*table, error) {
	db, err := pebble.Open(dir, &pebble.Options{Logger: quiet{}})
	return &table{db}, err
}

// put writes a comment to disk. The same key again changes nothing.
func (t *table) put(key string, c comment) error {
	value, err := json.Marshal(c)
	if err != nil {
		return err
	}
	return t.db.Set([]byte(key), value, pebble.Sync)
}

// after returns up to limit comments with keys after key, in their order. An empty key begins at the
// oldest comment.
func (t *table) after(key string, limit int) ([]stored, error) {
	return t.walk(func(i *pebble.Iterator) bool { return i.SeekGE([]byte(key + "\x00")) }, (*pebble.Iterator).Next, limit)
}

// before returns up to limit comments with keys before key, the last one first. An empty key begins at
// the newest comment.
func (t *table) before(key string, limit int) ([]stored, error) {
	seek := (*pebble.Iterator).Last
	if key != "" {
		seek = func(i *pebble.Iterator) bool { return i.SeekLT([]byte(key)) }
	}
	return t.walk(seek, (*pebble.Iterator).Prev, limit)
}

func (t *table) walk(seek, step func(*pebble.Iterator) bool, limit int) ([]stored, error) {
	found := []stored{} // an array in JSON, also if it is empty
	iter, err := t.db.NewIter(nil)
	if err != nil {
		return nil, err
	}
	for ok := seek(iter); ok && len(found) < limit; ok = step(iter) {
		s := stored{Key: string(iter.Key())}
		if err := json.Unmarshal(iter.Value(), &s.comment); err != nil {
			return nil, errors.Join(err, iter.Close())
		}
		found = append(found, s)
	}
	return found, iter.Close()
}

func (t *table) close() error { return t.db.Close() }

// quiet discards the messages of the database.
type quiet struct{}

func (quiet) Infof(string, ...any)  {}
func (quiet) Errorf(string, ...any) {}
func (quiet) Fatalf(format string, args ...any) {
	pebble.DefaultLogger.Fatalf(format, args...)
}
