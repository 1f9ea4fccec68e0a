package command

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/countmill/countmill/internal/api"
	"github.com/countmill/countmill/internal/app"
)

var restoreCommand = command{
	path:  "restore",
	group: "look",
	args:  "PLACE [DIR]",
	short: "write a backup to a directory",
	long: `Writes the newest backup in PLACE, or in a path below it, to DIR, which is new or empty. It
asks no server. PLACE is a directory or a URL like that of --backup-root.

  countmill restore /backups restored
  countmill up --data restored

  countmill restore /backups restored --at 2026-11-23T09:00:00Z
  countmill restore /backups --list

The checksum of every file is checked. DIR gets its name in the last step: a kill leaves
DIR.partial-..., which is no copy.

Stop the old countmill first. What it accepted after the backup is not in DIR. Senders may repeat
that: ids that the backup does not know count again.
`,
	run: runRestore,
}

func runRestore(ctx context.Context, c call) error {
	if c.list {
		return listBackups(ctx, c)
	}
	if len(c.args) != 2 {
		return app.Usagef("name one PLACE and one DIR, got %s", quoted(c.args))
	}
	var at time.Time
	if c.before != "" {
		at, _ = time.Parse(time.RFC3339Nano, c.before) // the flag's value has checked it
	}
	place, dir := c.args[0], c.args[1]
	r, err := app.Restore(ctx, c.roles.Buckets, place, at, dir)
	if err != nil {
		return err
	}
	fmt.Fprintf(c.stdout, "%s: backup %s of %d bytes; everything accepted before %s is in it\n", dir, r.ID, r.Bytes, api.FormatTime(r.BeganAt))
	fmt.Fprintf(c.stderr, "countmill: continue from it with countmill up --data %s\n", dir)
	return nil
}

// listBackups prints a line for each backup: its id, and the path of its place.
func listBackups(ctx context.Context, c call) error {
	if len(c.args) != 1 {
		return app.Usagef("name one PLACE, got %s", quoted(c.args))
	}
	found, err := app.Backups(ctx, c.roles.Buckets, c.args[0])
	if err != nil {
		return err
	}
	for _, b := range found {
		fmt.Fprintln(c.stdout, api.FormatTime(b.TakenAt), cmp.Or(b.Target, "."), b.ID)
	}
	return nil
}
