package command

import (
	"fmt"
	"strings"
)

// counted is a number of things: 1 row, 2 rows, 2 entries.
func counted[N int | int64](n N, what string) string {
	if n == 1 {
		return fmt.Sprintf("1 %s", what)
	}
	if stem, y := strings.CutSuffix(what, "y"); y {
		what = stem + "ie"
	}
	return fmt.Sprintf("%d %ss", n, what)
}
