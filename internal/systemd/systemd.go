// Package systemd reports the state of this process to its supervisor, as sd_notify(3) describes it:
// datagrams on the socket that the variable NOTIFY_SOCKET names. It is this small because countmill
// needs three messages; a library would bring journals, D-Bus and socket activation too.
package systemd

import (
	"fmt"
	"math"
	"net"
	"os"
	"strconv"
	"time"
)

// The messages of countmill.
const (
	Ready    = "READY=1"
	Stopping = "STOPPING=1"
	Alive    = "WATCHDOG=1"
)

// sendTimeout bounds one message. A guess: systemd reads its socket within milliseconds.
const sendTimeout = time.Second

// A Supervisor started this process and waits for its messages.
type Supervisor struct {
	socket string

	// Watchdog is the longest silence between two Alive before the supervisor kills the process; 0: any.
	Watchdog time.Duration
}

// FromEnv returns the supervisor that the variables name, or nil if none does. lookup is os.LookupEnv or a
// replacement of it.
func FromEnv(lookup func(string) (string, bool)) (*Supervisor, error) {
	socket, _ := lookup("NOTIFY_SOCKET")
	if socket == "" {
		return nil, nil
	}
	if socket[0] != '/' && socket[0] != '@' {
		return nil, fmt.Errorf("NOTIFY_SOCKET %q: want a path, or @ and a name", socket)
	}
	s := &Supervisor{socket: socket}
	usec, _ := lookup("WATCHDOG_USEC")
	pid, _ := lookup("WATCHDOG_PID")
	if usec == "" || pid != "" && pid != strconv.Itoa(os.Getpid()) {
		return s, nil
	}
	n, err := strconv.ParseInt(usec, 10, 64)
	if err != nil || n < 1 || n > math.MaxInt64/int64(time.Microsecond) {
		return nil, fmt.Errorf("WATCHDOG_USEC %q: want a number of microseconds above 0", usec)
	}
	s.Watchdog = time.Duration(n) * time.Microsecond
	return s, nil
}

// Send sends one message, within a second. It may be called by several goroutines.
func (s *Supervisor) Send(message string) error {
	conn, err := net.DialTimeout("unixgram", s.socket, sendTimeout)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetWriteDeadline(time.Now().Add(sendTimeout)); err != nil {
		return err
	}
	_, err = conn.Write([]byte(message))
	return err
}
