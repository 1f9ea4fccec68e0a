package cli

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strings"
	"unicode"
)

// IsTerminal reports whether a person is at the other end.
func IsTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// Confirm asks a person. Nobody to ask, which is nil, is an error, and no is one too.
func Confirm(person io.Reader, out io.Writer, question string) error {
	if person == nil {
		return Usagef("%s Nobody can be asked here: say --yes", question)
	}
	fmt.Fprintf(out, "%s [y/N] ", question)
	line, err := bufio.NewReader(io.LimitReader(person, 1000)).ReadString('\n')
	if err != nil && err != io.EOF {
		return err
	}
	if answer := strings.ToLower(strings.TrimSpace(line)); answer != "y" && answer != "yes" {
		return fmt.Errorf("nothing was done")
	}
	return nil
}

// Plain is text from elsewhere as a terminal may have it: on one line, with \u202E for a
// character that moves the cursor, changes colours or turns the direction of writing.
func Plain(text string) string {
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
