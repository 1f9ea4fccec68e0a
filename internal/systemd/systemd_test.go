//go:build unix

package systemd

import (
	"os"
	"strconv"
	"testing"
	"time"
)

func TestFromEnv(t *testing.T) {
	t.Parallel()
	self := strconv.Itoa(os.Getpid())
	for _, test := range []struct {
		env      map[string]string
		watchdog time.Duration
		some     bool
		wantErr  bool
	}{
		{env: nil},
		{env: map[string]string{"NOTIFY_SOCKET": "", "WATCHDOG_USEC": "5"}},
		{env: map[string]string{"NOTIFY_SOCKET": "/run/s"}, some: true},
		{env: map[string]string{"NOTIFY_SOCKET": "@s", "WATCHDOG_USEC": "30000000"}, some: true, watchdog: 30 * time.Second},
		{env: map[string]string{"NOTIFY_SOCKET": "/s", "WATCHDOG_USEC": "1", "WATCHDOG_PID": self}, some: true, watchdog: time.Microsecond},
		{env: map[string]string{"NOTIFY_SOCKET": "/s", "WATCHDOG_USEC": "1", "WATCHDOG_PID": "1" + self}, some: true},
		{env: map[string]string{"NOTIFY_SOCKET": "s"}, wantErr: true},
		{env: map[string]string{"NOTIFY_SOCKET": "/s", "WATCHDOG_USEC": "0"}, wantErr: true},
		{env: map[string]string{"NOTIFY_SOCKET": "/s", "WATCHDOG_USEC": "9223372036854775807"}, wantErr: true},
	} {
		s, err := FromEnv(func(name string) (string, bool) { v, ok := test.env[name]; return v, ok })
		if (err != nil) != test.wantErr || (s != nil) != test.some || s != nil && s.Watchdog != test.watchdog {
			t.Errorf("%v: got %+v, %v, want one: %t, watchdog %s, an error: %t", test.env, s, err, test.some, test.watchdog, test.wantErr)
		}
	}
}
