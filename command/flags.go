package command

import (
	"time"

	"github.com/countmill/countmill/command/cli"
	"github.com/countmill/countmill/internal/transfer"
)

// Flags that several commands have.

// serverTimeout is a minute more than the server's own, after which it says why.
const serverTimeout = 11 * time.Minute

var formats = []string{string(transfer.CSV), string(transfer.NDJSON)}

func minAsOfFlag(to *string) cli.Flag {
	return cli.New("min-as-of", "TIME", cli.Moment(to), "Only totals of this moment or a later one: the as_of or counted_as_of of an earlier answer.").Default("any")
}

func groupFlag(to *[]string) cli.Flag {
	return cli.New("group", "GROUP", cli.List{To: to}, "A group of an index, beside NAMEs or instead of them; short for the NAME =GROUP. May be repeated, but for rank.").Default("none")
}

func zoneFlag(to *string) cli.Flag {
	*to = "UTC"
	return cli.New("tz", "ZONE", cli.Any(to), "The time zone of days and longer times, such as Asia/Kolkata.")
}

func outputFlag(to *string) cli.Flag {
	*to = "-"
	return cli.New("output", "FILE", cli.Any(to), "File to write; - is standard output.")
}

func expiresFlag(to *string) cli.Flag {
	return cli.New("expires", "WHEN", cli.Any(to), "A time such as 2027-01-02T15:04:05Z, or a duration from now, such as 720h or 90d.").Default("never; share: 30d")
}

func addToFlag(to *string) cli.Flag {
	return cli.New("file", "FILE", cli.Any(to), "Add the line to FILE, which is made if missing, and print the token or the link only.").Default("print the line")
}

func tokensFlag(to *string) cli.Flag {
	return cli.New("file", "FILE", cli.Any(to), "The file of the server's --tokens.").Default("none; needed")
}
