package command

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/countmill/countmill/client"
	"github.com/countmill/countmill/command/cli"
)

var journalEraseCommand = cli.Command{
	Path:  "journal erase",
	Args:  "NAME",
	Short: "remove the entries of a counter from the journal",
	Long: `Removes the counter's name and its deltas from all records. End the counter's rule first: entries
of the last moments stay, and the last line says from when on.

NAME is one counter. Recounts of its prefix begin at a new opening balance: run
"countmill recount PREFIX" before, and "countmill recount PREFIX --opening" after.

  countmill journal erase user:42:orders --yes

Exit code 1 as well if there was nothing to erase.
`,
	New: func() cli.Verb { return new(journalEraseVerb) },
}

type journalEraseVerb struct {
	calling
	yes bool
}

func (c *journalEraseVerb) Flags() []cli.Flag {
	return c.flags(usual, "", cli.Switch("yes", &c.yes, "Erase. Nothing can undo that."))
}

func (c *journalEraseVerb) Run(ctx context.Context) error {
	if err := checkNames(c.args, 1); err != nil {
		return err
	}
	if !c.yes {
		return cli.Usagef("erased entries cannot be restored: add --yes to erase the entries of %q", c.args[0])
	}
	erased, others, after := 0, 0, ""
	for {
		got, err := asked(ctx, &c.calling, func(ctx context.Context, cl *client.Client) (client.Erased, error) {
			return cl.EraseJournal(ctx, c.args[0], after)
		})
		if err != nil {
			return err
		}
		erased, others = erased+got.Erased, others+got.Others
		if after = got.Next; after == "" {
			return c.reportErased(erased, others, stamp(got.SettledUntil))
		}
	}
}

// reportErased prints the number of erased entries. Nothing is an error: the name may be wrong, and its owner waits for the erasure. An
// earlier run may have erased all, and so may a call of this one whose answer was lost.
func (c *call) reportErased(erased, others int, settled string) error {
	if erased+others == 0 {
		text := fmt.Sprintf("there was nothing to erase: the journal has no entries of the counter %q up to %s, or no more of them", c.args[0], settled)
		if strings.HasSuffix(c.args[0], "*") {
			text += "; name one counter, and no pattern"
		}
		return errors.New(text)
	}
	with := ""
	if others > 0 {
		with = fmt.Sprintf(", and %d opening balances and corrections", others)
	}
	_, err := fmt.Fprintf(c.stdout, "%s erased%s, up to %s\n", counted(erased, "entry"), with, settled)
	return err
}
