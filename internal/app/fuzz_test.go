package app

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/countmill/countmill/backend"
)

// written is the URL as it would be written.
func written(u backend.URL) string {
	text := u.Scheme + ":" + escapeDir(u.Rest)
	if len(u.Params) > 0 {
		text += "?" + u.Params.Encode()
	}
	return text
}

// checkBackend is the URL of a flag as New reads it.
func checkBackend(roles Roles, flag, text string) (backend.URL, error) {
	cfg := Config{Roles: roles}
	switch flag {
	case "bus":
		cfg.Bus = text
		c, err := chooseBus(cfg)
		return c.url, err
	case "store":
		cfg.Store = text
		c, err := chooseStore(cfg)
		return c.url, err
	}
	cfg.Cache = text
	c, err := chooseCache(cfg)
	return c.url, err
}

// FuzzBackendURL: a URL of a backend is refused as a wrong use, or means the same when it
// is written out and read again.
func FuzzBackendURL(f *testing.F) {
	for _, text := range []string{
		"inproc:", "pebble:countmill-data", "pebble:///var/lib/a%20b?namespace=x%26y", "pebble:a%25%3Fb", "memory:?totals=5", "memory:x",
		"pubsub://project/topic?subscription=name", "datastore://project/database?namespace=n",
		"memcached://127.0.0.1:11211,[::1]:2", "memcached://h:1,h:1", "pebble:?namespace=a&namespace=b", "pebble:%zz", "pebble://host/x", ":",
	} {
		for which := range uint8(12) {
			f.Add(text, which)
		}
	}
	f.Fuzz(func(t *testing.T, text string, which uint8) {
		flag := []string{"bus", "store", "cache"}[which%3]
		roles := []Roles{Up, Publisher, Aggregator, Reader}[which/3%4]
		u, err := checkBackend(roles, flag, text)
		if err != nil {
			if !errors.Is(err, ErrUsage) {
				t.Fatalf("error %v of type %T, want ErrUsage", err, err)
			}
			return
		}
		again, err := checkBackend(roles, flag, written(u))
		if err != nil {
			t.Fatalf("%q was taken, and as %q: %v", text, written(u), err)
		}
		u.Text, again.Text = "", "" // as it was given
		if diff := cmp.Diff(u, again); diff != "" {
			t.Fatalf("%q and %q (-first +second):\n%s", text, written(u), diff)
		}
	})
}

// FuzzDataDir: pebble opens the directory of --data, with any characters in its name.
func FuzzDataDir(f *testing.F) {
	for _, dir := range []string{"a", "/var/lib/x", "//x", "a%b", "a?b#c", "a b", "é", "///"} {
		f.Add(dir)
	}
	f.Fuzz(func(t *testing.T, dir string) {
		if dir == "" || strings.Contains(dir, "\x00") {
			return
		}
		st := PebbleURL(dir)
		u, err := checkBackend(Up, "store", st)
		if err != nil {
			t.Fatalf("--data %q is %q: %v", dir, st, err)
		}
		if got, err := u.Dir(); err != nil || filepath.Clean(got) != filepath.Clean(dir) {
			t.Fatalf("--data %q names %q, %v", dir, got, err)
		}
	})
}
