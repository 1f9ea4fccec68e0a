package command

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/countmill/countmill/client"
	"github.com/countmill/countmill/internal/app"
)

var backupCommand = command{
	path:  "backup",
	group: "look",
	args:  "DIR",
	short: "copy the counters of a running countmill to DIR",
	long: `Copies all of a running countmill's pebble: store to the directory DIR, which is new or
empty, while it goes on counting, and returns when the copy is whole. Everything that was
accepted before is in it. Later increments may be.

  countmill up --backup-root /backups
  countmill backup monday                  makes /backups/monday

The server writes it, on its own machine, below its --backup-root alone: DIR is relative to
that, or absolute and below it. The directory above DIR exists, and no part of DIR is a
symbolic link. Only the server's user can read the copy.

To go on from a backup, copy it first, as a server writes to its directory:

  cp -r /backups/monday /var/lib/countmill
  countmill up --data /var/lib/countmill

On the disk of the counters a backup costs next to nothing, as files are shared, and it goes
with that disk: copy it to another one. A kill or a loss of power leaves DIR.partial-...
behind, which is no backup.
`,
	run: runBackup,
}

func runBackup(ctx context.Context, c call) error {
	args := c.args
	if len(args) != 1 {
		return app.Usagef("name one DIR, got %s", quoted(args))
	}
	answer, err := c.ask(ctx, client.Request{Method: http.MethodPost, Path: "/v1/backup", Body: body(map[string]string{"dir": args[0]})})
	if err != nil {
		return err
	}
	if c.json {
		_, err = c.stdout.Write(answer)
		return err
	}
	var made struct {
		Dir string `json:"dir"`
	}
	if err := json.Unmarshal(answer, &made); err != nil || made.Dir == "" {
		return fmt.Errorf("the server answered %.200q, which names no directory", answer)
	}
	fmt.Fprintf(c.stdout, "%s: to go on from it, copy it and name the copy with `countmill up --data`\n", made.Dir)
	return nil
}
