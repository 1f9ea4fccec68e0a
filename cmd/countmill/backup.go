package main

import (
	"context"
	"fmt"
	"net/url"
	"path/filepath"
	"time"

	"github.com/countmill/countmill/internal/app"
)

// backupTimeout is the server's own.
const backupTimeout = 10 * time.Minute

var backupCommand = command{
	name:  "backup",
	args:  "DIR",
	short: "copy the counters of a running countmill to DIR",
	long: `Copies all of a running countmill's pebble: store to the directory DIR, which is new or
empty, while it goes on counting, and returns when the copy is whole. Everything that was
accepted before is in it. What is accepted meanwhile may be.

  countmill backup /backups/monday
  countmill up --data /backups/monday      goes on from there

The server writes it, so DIR is a directory of the server's machine, and the directory
above it is there. On the disk of the counters it costs next to nothing, as files are
shared, and goes with that disk: copy it to another one.
A kill or a loss of power leaves DIR.partial-... behind, which is no backup.
`,
	flags: func() string {
		return `  --server URL
      The countmill to talk to. Default http://` + app.DefaultListen + `. [COUNTMILL_SERVER]
  --timeout DURATION
      How long to wait; without an answer there is no backup. Default 10m. [COUNTMILL_TIMEOUT]
  --json
      Write the server's answer as it is.
` + tokenHelp
	},
	run: runBackup,
}

func runBackup(ctx context.Context, c call) error {
	v := newVerbFlags("backup", backupTimeout)
	args, err := v.parse(c)
	if err != nil {
		return err
	}
	if len(args) != 1 {
		return app.Usagef("name one DIR, got %s", quoted(args))
	}
	cl, err := v.client()
	if err != nil {
		return err
	}
	dir, err := serverDir(args[0], cl.base)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, v.timeout)
	defer cancel()
	answer, err := cl.post(ctx, "/v1/backup", nil, map[string]string{"dir": dir})
	if err != nil {
		return err
	}
	if v.json {
		_, err = c.stdout.Write(answer)
		return err
	}
	fmt.Fprintf(c.stdout, "%s: start from it with `countmill up --data`\n", dir)
	return nil
}

// serverDir is a directory as the server has to be told. A relative one means something
// only where the server is on this machine.
func serverDir(dir, server string) (string, error) {
	if filepath.IsAbs(dir) {
		return filepath.Clean(dir), nil
	}
	u, err := url.Parse(server)
	if err != nil {
		return "", err
	}
	if dir == "" || !isLoopback(u.Hostname()) {
		return "", app.Usagef("DIR %q: must begin with /, it is a directory of the machine of %s", dir, server)
	}
	return filepath.Abs(dir)
}
