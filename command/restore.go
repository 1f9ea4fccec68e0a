package command

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/countmill/countmill/internal/app"
	"github.com/countmill/countmill/internal/backup"
	"github.com/countmill/countmill/internal/httpserver"
	"github.com/countmill/countmill/internal/transfer"
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

A line of the list has the time, the path below PLACE, the database and the backup. If PLACE has
backups of several databases, choose one with --database.

The checksum of every file is checked. DIR gets its name in the last step: a kill leaves
DIR.countmill-restore, which is no copy. The next restore to DIR removes it.

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
	choice := backup.Choice{Database: c.database}
	if c.before != "" {
		choice.At, _ = time.Parse(time.RFC3339Nano, c.before) // the flag's value has checked it
	}
	place, dir := c.args[0], c.args[1]
	release, err := holdDir(dir)
	if err != nil {
		return err
	}
	defer release()
	r, err := app.Restore(ctx, c.roles.Buckets, place, choice, dir)
	if r.Left != "" {
		fmt.Fprintf(c.stderr, "countmill: removed %s, which a restore that was killed had left\n", r.Left)
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(c.stdout, "%s: backup %s of %d bytes; everything accepted before %s is in it\n", dir, r.ID, r.Bytes, httpserver.FormatTime(r.BeganAt))
	fmt.Fprintf(c.stderr, "countmill: continue from it with countmill up --data %s\n", dir)
	return nil
}

// holdDir keeps other restores of this machine from a directory that may be missing.
func holdDir(dir string) (release func(), err error) {
	dir, err = filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o700); err != nil {
		return nil, err
	}
	return transfer.Hold(dir)
}

// listBackups prints a line for each backup.
func listBackups(ctx context.Context, c call) error {
	if len(c.args) != 1 {
		return app.Usagef("name one PLACE, got %s", quoted(c.args))
	}
	found, err := app.Backups(ctx, c.roles.Buckets, c.args[0])
	if err != nil {
		return err
	}
	for _, b := range found {
		fmt.Fprintln(c.stdout, httpserver.FormatTime(b.TakenAt), cmp.Or(b.Target, "."), b.Database, b.ID)
	}
	return nil
}
