// Command countmill counts: it runs the roles of the pipeline and talks to them. Package command
// has all of it.
package main

import (
	"os"

	"github.com/countmill/countmill/command"
)

func main() { os.Exit(command.Main()) }
