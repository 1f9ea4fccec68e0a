package app

import (
	"errors"
	"net"
	"strconv"
)

// Check reports all that is wrong with the configuration without opening anything. The
// error matches ErrUsage.
func (c Config) Check() error {
	c = c.withDefaults()
	_, err := checkBackends(c)
	return errors.Join(err, checkListen(c.Listen))
}

func checkListen(addr string) error {
	_, port, err := net.SplitHostPort(addr)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil {
		return Usagef("--listen: must be HOST:PORT with a port from 0 to 65535, got %q", addr)
	}
	return nil
}
