package app

import (
	"errors"
	"slices"
	"strings"

	"github.com/countmill/countmill/backend"
)

// stores, buses and caches are the backends that the program brings.
func stores() []backend.Store {
	return []backend.Store{pebbleStore(), postgresStore(), datastoreStore()}
}

func buses() []backend.Bus { return []backend.Bus{inprocBus(), natsBus(), pubsubBus()} }

func caches() []backend.Cache { return []backend.Cache{memoryCache(), memcachedCache()} }

// A choice is the backend that a URL names, and the URL.
type choice[T any] struct {
	opener T
	url    backend.URL
}

// A form is what choose has to know of an opener.
type form struct {
	scheme, usage string
	params        []string
	oneProcess    bool
}

// choose finds the opener for a URL. It refuses unknown schemes and parameters, and names the
// valid ones. A single role refuses a backend of one process: no other process would ever reach
// it.
func choose[T any](flag, text string, roles Roles, openers []T, formOf func(T) form) (c choice[T], err error) {
	scheme, _, ok := strings.Cut(text, ":")
	i := slices.IndexFunc(openers, func(o T) bool { return ok && formOf(o).scheme == scheme })
	if i < 0 {
		usages := make([]string, len(openers))
		for i, o := range openers {
			usages[i] = formOf(o).usage
		}
		return c, Usagef("--%s: unknown scheme in %q (valid: %s)", flag, backend.Shown(text), strings.Join(usages, ", "))
	}
	c.opener = openers[i]
	f := formOf(c.opener)
	if c.url, err = backend.Parse(text, f.params); err != nil {
		return c, Usagef("--%s: %s", flag, err)
	}
	if roles != Up && f.oneProcess {
		return c, Usagef("--%s: %s: lives within one process, which the %s role alone cannot share; use `countmill up`, which runs all roles in one",
			flag, scheme, roles)
	}
	return c, nil
}

// A chosen is the backends of a process. A backend that its roles do not need is empty.
type chosen struct {
	store choice[backend.Store]
	bus   choice[backend.Bus]
	cache choice[backend.Cache]
}

// chooseBackends finds the backends that the roles need, and checks their URLs.
func chooseBackends(cfg Config) (c chosen, err error) {
	var errs [3]error
	if cfg.Roles.Has(needBus) {
		c.bus, errs[0] = chooseBus(cfg)
	}
	if cfg.Roles.Has(needStore) {
		c.store, errs[1] = chooseStore(cfg)
	}
	if cfg.Roles.Has(needCache) {
		c.cache, errs[2] = chooseCache(cfg)
	}
	return c, errors.Join(errs[:]...)
}

func chooseStore(cfg Config) (choice[backend.Store], error) {
	if rest, ok := strings.CutPrefix(cfg.Store, "postgresql:"); ok { // libpq has two names
		cfg.Store = "postgres:" + rest
	}
	c, err := choose("store", cfg.Store, cfg.Roles, slices.Concat(stores(), cfg.Stores), func(o backend.Store) form {
		return form{o.Scheme, o.Usage, o.Params, o.OneProcess}
	})
	if err == nil && c.opener.Check != nil {
		err = usage("store", c.opener.Check(c.url))
	}
	return c, err
}

func chooseBus(cfg Config) (choice[backend.Bus], error) {
	c, err := choose("bus", cfg.Bus, cfg.Roles, slices.Concat(buses(), cfg.Buses), func(o backend.Bus) form {
		return form{o.Scheme, o.Usage, o.Params, o.OneProcess}
	})
	if err == nil && c.opener.Check != nil {
		err = usage("bus", c.opener.Check(c.url, busConfig(cfg)))
	}
	return c, err
}

func chooseCache(cfg Config) (choice[backend.Cache], error) {
	c, err := choose("cache", cfg.Cache, cfg.Roles, caches(), func(o backend.Cache) form {
		return form{o.Scheme, o.Usage, o.Params, false}
	})
	if err == nil && c.opener.Check != nil {
		err = usage("cache", c.opener.Check(c.url))
	}
	return c, err
}

// usage says which flag an error is about.
func usage(flag string, err error) error {
	if err == nil {
		return nil
	}
	return Usagef("--%s: %s", flag, err)
}

// freeReads reports whether reads of the store cost next to nothing.
func (c Config) freeReads() bool {
	s, _ := chooseStore(c)
	return s.opener.OneProcess || s.opener.FreeReads
}

// oneProcess reports whether only this process can have the store, and the bus.
func (c Config) oneProcess() (store, bus bool) {
	s, _ := chooseStore(c)
	b, _ := chooseBus(c)
	return s.opener.OneProcess, b.opener.OneProcess
}

// PebbleURL is the URL of a store in the directory dir of this machine.
func PebbleURL(dir string) string {
	if strings.HasPrefix(dir, "//") { // which a URL takes for the name of a host
		dir = "//" + dir
	}
	return "pebble:" + escapeDir(dir)
}

// escapeDir is the directory as a URL has it.
func escapeDir(dir string) string {
	return strings.NewReplacer("%", "%25", "?", "%3F").Replace(dir)
}

// checkOpeners refuses backends of other modules that nobody could choose.
func checkOpeners(cfg Config) error {
	seen := make(map[string]bool)
	check := func(kind, scheme string, opens bool) error {
		switch {
		case scheme == "" || strings.ContainsAny(scheme, ":/?%"):
			return Usagef("--%s: scheme %q of another module must be a word without :, /, ? and %%", kind, scheme)
		case seen[kind+scheme]:
			return Usagef("--%s: scheme %q has two openers", kind, scheme)
		case !opens:
			return Usagef("--%s: scheme %q of another module has no Open", kind, scheme)
		}
		seen[kind+scheme] = true
		return nil
	}
	var errs []error
	for _, s := range slices.Concat(stores(), cfg.Stores) {
		errs = append(errs, check("store", s.Scheme, s.Open != nil))
	}
	for _, b := range slices.Concat(buses(), cfg.Buses) {
		errs = append(errs, check("bus", b.Scheme, b.Open != nil))
	}
	return errors.Join(errs...)
}
