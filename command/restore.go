package command

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/countmill/countmill/command/cli"
	"github.com/countmill/countmill/internal/app"
	"github.com/countmill/countmill/internal/backup"
	"github.com/countmill/countmill/internal/httpserver"
	"github.com/countmill/countmill/internal/transfer"
)

var restoreCommand = cli.Command{
	Path:  "restore",
	Group: "look",
	Args:  "PLACE [DIR]",
	Short: "write a backup to a directory",
	Long: `Writes the newest backup in PLACE, or in a path below it, to DIR, which is new or empty. It
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
	New: func() cli.Verb { return new(restoreVerb) },
}

type restoreVerb struct {
	call
	at, database string
	list         bool
}

func (c *restoreVerb) Flags() []cli.Flag {
	return []cli.Flag{
		cli.New("at", "TIME", cli.Moment(&c.at), "Take the newest backup that was taken at TIME or before, as 2006-01-02T15:04:05Z. It has nothing that was accepted after TIME.").Default("the newest"),
		cli.New("database", "ID", cli.Any(&c.database), "Take a backup of this database. --list shows the ids. Needed if PLACE has backups of several databases.").Default("the only one"),
		cli.Switch("list", &c.list, "List the backups, the oldest first, and restore none."),
	}
}

func (c *restoreVerb) Run(ctx context.Context) error {
	if c.list {
		return c.listAll(ctx)
	}
	if len(c.args) != 2 {
		return cli.Usagef("name one PLACE and one DIR, got %s", cli.Quoted(c.args))
	}
	choice := backup.Choice{Database: c.database}
	if c.at != "" {
		choice.At, _ = time.Parse(time.RFC3339Nano, c.at) // the flag's value has checked it
	}
	place, dir := c.args[0], c.args[1]
	release, err := holdDir(dir)
	if err != nil {
		return err
	}
	defer release()
	r, err := app.Restore(ctx, c.buckets, place, choice, dir)
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

// listAll prints a line for each backup.
func (c *restoreVerb) listAll(ctx context.Context) error {
	if len(c.args) != 1 {
		return cli.Usagef("name one PLACE, got %s", cli.Quoted(c.args))
	}
	found, err := app.Backups(ctx, c.buckets, c.args[0])
	if err != nil {
		return err
	}
	for _, b := range found {
		fmt.Fprintln(c.stdout, httpserver.FormatTime(b.TakenAt), cmp.Or(b.Target, "."), b.Database, b.ID)
	}
	return nil
}
