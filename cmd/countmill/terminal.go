package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strings"
	"unicode"

	"github.com/countmill/countmill/internal/app"
)

// isTerminal reports whether a person sees what is written, or types what is read.
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

// plain is text from elsewhere as a terminal may have it: on one line, without what moves
// the cursor or changes colours.
func plain(text string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '\ufffd'
		}
		return r
	}, text)
}
