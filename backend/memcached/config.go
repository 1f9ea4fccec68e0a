package memcached

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"
)

// Config says where memcached is. Servers is required.
type Config struct {
	// Servers are HOST:PORT each. All readers of a store should name the same servers; their order does
	// not matter.
	Servers []string

	// Prefix begins every key: at most 128 bytes, without spaces or control characters. Readers of
	// different databases on one memcached need different prefixes, because they would replace each
	// other's totals. Default "cm:".
	Prefix string
	// Key is the key of each value's checksum. Readers of one database need the same key. Readers of
	// different databases need different keys, or they serve each other's totals. Default zeros.
	Key [32]byte

	// Timeout bounds each call, and within it connecting and each exchange with a server. Default
	// 100ms.
	Timeout time.Duration

	// MaxIdle is the most connections to a server. Idle ones stay open. Further calls wait for a
	// connection. Default 64.
	MaxIdle int
}

func (c Config) withDefaults() Config {
	c.Prefix = cmp.Or(c.Prefix, "cm:")
	c.Timeout = cmp.Or(c.Timeout, 100*time.Millisecond)
	c.MaxIdle = cmp.Or(c.MaxIdle, 64)
	return c
}

// validate reports all problems at once.
func (c Config) validate() error {
	var errs []error
	if len(c.Servers) == 0 {
		errs = append(errs, errors.New("Servers is empty: name at least one HOST:PORT"))
	}
	seen := make(map[string]bool)
	for _, server := range c.Servers {
		if err := CheckServer(server); err != nil {
			errs = append(errs, fmt.Errorf("Servers: %w", err))
		} else if seen[server] {
			errs = append(errs, fmt.Errorf("Servers: %q is listed twice", server))
		}
		seen[server] = true
	}
	if !legalPrefix(c.Prefix) {
		errs = append(errs, fmt.Errorf("Prefix must have at most %d bytes, without spaces and control characters, got %q", maxPrefix, c.Prefix))
	}
	if c.Timeout < 0 {
		errs = append(errs, fmt.Errorf("Timeout must not be negative, got %s", c.Timeout))
	}
	if c.MaxIdle < 0 {
		errs = append(errs, fmt.Errorf("MaxIdle must not be negative, got %d", c.MaxIdle))
	}
	return errors.Join(errs...)
}

// CheckServer returns an error if server is not HOST:PORT.
func CheckServer(server string) error {
	host, port, err := net.SplitHostPort(server)
	if err != nil || host == "" {
		return fmt.Errorf("a server is HOST:PORT, got %q", server)
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return fmt.Errorf("a server's port is 1 to 65535, got %q", server)
	}
	return nil
}

const maxPrefix = 128

func legalPrefix(prefix string) bool {
	for _, b := range []byte(prefix) {
		if b <= ' ' || b == 0x7f {
			return false
		}
	}
	return len(prefix) <= maxPrefix
}
