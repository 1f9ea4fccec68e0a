package command

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strings"
	"unicode"

	"github.com/countmill/countmill/internal/app"
)

// isTerminal reports whether a person is at the other end.
func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// confirm asks a person. Nobody to ask is an error, no is one too.
func (c call) confirm(question string) error {
	if c.person == nil {
		return app.Usagef("%s Nobody can be asked here: say --yes", question)
	}
	fmt.Fprintf(c.stderr, "%s [y/N] ", question)
	line, err := bufio.NewReader(io.LimitReader(c.person, 1000)).ReadString('\n')
	if err != nil && err != io.EOF {
		return err
	}
	if answer := strings.ToLower(strings.TrimSpace(line)); answer != "y" && answer != "yes" {
		return fmt.Errorf("nothing was done")
	}
	return nil
}

// plain is text from elsewhere as a terminal may have it: on one line, with \u202E for a
// character that moves the cursor, changes colours or turns the direction of writing.
func plain(text string) string {
	unprintable := func(r rune) bool { return !unicode.IsPrint(r) }
	if strings.IndexFunc(text, unprintable) < 0 {
		return text
	}
	var b strings.Builder
	for _, r := range text {
		switch {
		case !unprintable(r):
			b.WriteRune(r)
		case r > 0xFFFF:
			fmt.Fprintf(&b, `\U%08X`, r)
		default:
			fmt.Fprintf(&b, `\u%04X`, r)
		}
	}
	return b.String()
}
