package command

import (
	"context"
	"fmt"
	"strings"

	"github.com/countmill/countmill/client"
	"github.com/countmill/countmill/command/cli"
)

var backupCommand = cli.Command{
	Path:  "backup",
	Group: "look",
	Args:  "[TO]",
	Short: "take a backup of a running countmill",
	Long: `Copies a running countmill's pebble: store while it goes on counting, and returns when the
backup is whole. Everything that was accepted before is in it. Later increments may be.

  countmill up --backup-root /backups
  countmill backup                         to /backups
  countmill backup before-upgrade          to /backups/before-upgrade
  countmill backup file:///backups         to /backups

The server writes it: to its --backup-root, or to the path TO below it. TO is relative, or a
directory or URL that is the root or below it. A backup sends only the files that its place
does not have, so a second one to the same place is small.

  countmill up --backup-root gs://bucket/counters --backup-every 15m --backup-keep 7d

takes a backup every 15 minutes. Directories need nothing else; gs:// and s3:// need the program
countmill-backup, which has all commands of countmill.

A backup that is interrupted is not listed, and the next one continues it. "countmill restore"
writes a backup to a directory.
`,
	New: func() cli.Verb { return new(backupVerb) },
}

type backupVerb struct{ calling }

func (c *backupVerb) Flags() []cli.Flag { return c.flags(serverTimeout, oneAnswer) }

func (c *backupVerb) Run(ctx context.Context) error {
	if len(c.args) > 1 {
		return cli.Usagef("name one place at most, got %s", cli.Quoted(c.args))
	}
	to := strings.Join(c.args, "")
	if len(c.args) == 1 && to == "" {
		return cli.Usagef("TO is empty: leave it out for the backup root itself")
	}
	return shown(ctx, &c.calling, func(ctx context.Context, cl *client.Client) (client.Backup, error) { return cl.Backup(ctx, to) }, func(b client.Backup) error {
		_, err := fmt.Fprintf(c.stdout, "%s: backup %s of %d bytes, %d of them sent\n", b.URL, b.ID, b.Bytes, b.SentBytes)
		return err
	})
}
