package command

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/countmill/countmill/command/cli"
	"github.com/countmill/countmill/internal/app"
	"github.com/countmill/countmill/internal/backup"
	"github.com/countmill/countmill/internal/httpserver"
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

The checksum of every file is checked. DIR gets its name in the last step: a kill leaves a directory
DIR.countmill-restore-NUMBER, which is no copy. Remove it.

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
	r, err := app.Restore(ctx, c.buckets, place, choice, dir)
	if err != nil {
		return err
	}
	fmt.Fprintf(c.stdout, "%s: backup %s of %d bytes; everything accepted before %s is in it\n", dir, r.ID, r.Bytes, httpserver.FormatTime(r.BeganAt))
	fmt.Fprintf(c.stderr, "countmill: continue from it with countmill up --data %s\n", dir)
	return nil
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
