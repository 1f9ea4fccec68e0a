package transfer

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/countmill/countmill"
)

const deltaLimit = "-9007199254740991 to 9007199254740991, not 0"

// The forms of a delta. 1,234 and 1.000 are thousands to some people, and fractions to others.
var (
	integer   = regexp.MustCompile(`^[+-]?[0-9]+(\.0+)?$`)
	ambiguous = regexp.MustCompile(`^[+-]?([0-9]{1,3}(([., '\x{a0}\x{202f}’][0-9]{3})+([.,][0-9]+)?)|[0-9]+,[0-9]+)$`)
)

// parseDelta reads an integer, which may have a sign and .0 at its end.
func parseDelta(text string) (int64, error) {
	switch {
	case ambiguous.MatchString(text):
		return 0, &countmill.FieldError{Field: "delta", Problem: fmt.Sprintf("%q is ambiguous: it has a separator of thousands or of a fraction", shorten(text)),
			Limit: deltaLimit + ", without separators"}
	case !integer.MatchString(text):
		return 0, &countmill.FieldError{Field: "delta", Problem: fmt.Sprintf("%q is not an integer", shorten(text)), Limit: deltaLimit}
	}
	whole, _, _ := strings.Cut(text, ".")
	delta, err := strconv.ParseInt(whole, 10, 64)
	if errors.Is(err, strconv.ErrRange) {
		delta = countmill.MaxDelta + 1 // out of range, which the check reports
	}
	return delta, countmill.CheckDelta(delta)
}
