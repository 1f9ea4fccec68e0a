package command

import (
	"strings"

	"github.com/countmill/countmill/internal/httpserver"
)

// The values of flags that may be repeated.

// A listValue gathers texts; setting it again adds to it. split takes several with commas between.
type listValue struct {
	to    *[]string
	split bool
}

func (v listValue) String() string { return strings.Join(*v.to, ",") }
func (v listValue) Type() string   { return "list" }

func (v listValue) Set(s string) error {
	if v.split {
		*v.to = append(*v.to, strings.Split(s, ",")...)
	} else {
		*v.to = append(*v.to, s)
	}
	return nil
}

// An originsValue gathers origins of web pages; setting it again adds to it.
type originsValue struct{ to *[]string }

func (v originsValue) Type() string { return "origin" }

func (v originsValue) String() string {
	if len(*v.to) == 0 {
		return "none"
	}
	return strings.Join(*v.to, ",")
}

func (v originsValue) Set(s string) error {
	for origin := range strings.SplitSeq(s, ",") {
		if err := httpserver.CheckOrigin(strings.TrimSpace(origin)); err != nil {
			return err
		}
		*v.to = append(*v.to, strings.TrimSpace(origin))
	}
	return nil
}

// A rulesValue gathers rules; setting it again adds to it.
type rulesValue struct {
	to    *[]string
	check func(string) error
}

func (v rulesValue) Type() string { return "rule" }

func (v rulesValue) String() string {
	if len(*v.to) == 0 {
		return "none"
	}
	return strings.Join(*v.to, " ")
}

func (v rulesValue) Set(s string) error {
	if err := v.check(s); err != nil {
		return err
	}
	*v.to = append(*v.to, s)
	return nil
}
