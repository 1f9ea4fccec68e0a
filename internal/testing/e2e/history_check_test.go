package e2e

import (
	"strings"
	"testing"
	"time"
)

// Correct histories pass, and each kind of error is found.
func TestHistoryCheck(t *testing.T) {
	t.Parallel()
	at := func(s int) time.Time { return epoch.Add(time.Duration(s) * time.Second) }
	a := func(call, acked int) add {
		if acked == 0 {
			return add{time.Duration(call) * time.Second, never, true}
		}
		return add{time.Duration(call) * time.Second, time.Duration(acked) * time.Second, true}
	}
	r := func(call, ret int, asOf time.Time, total int64) read {
		return read{call: time.Duration(call) * time.Second, ret: time.Duration(ret) * time.Second, asOf: asOf, total: total}
	}
	stale := func(call, staleness int, asOf time.Time, total int64) read {
		return read{time.Duration(call) * time.Second, time.Duration(call+1) * time.Second, time.Duration(staleness) * time.Second, asOf, total}
	}
	for name, tt := range map[string]struct {
		adds        []add
		reads       []read
		up, apart   string // a part of the error; "" if there is none
		showProblem string // an error that the read itself shows
	}{
		"read after":                 {adds: []add{a(1, 2), a(1, 3)}, reads: []read{r(4, 5, at(4), 1+4)}},
		"read between":               {adds: []add{a(1, 5), a(1, 5)}, reads: []read{r(2, 3, at(2), 4), r(6, 7, at(6), 5)}},
		"answered and not there":     {adds: []add{a(1, 2)}, reads: []read{r(3, 4, at(3), 0)}, up: "must come after"},
		"unknown and never there":    {adds: []add{a(1, 0), a(1, 2)}, reads: []read{r(3, 4, at(3), 4), r(5, 6, at(5), 4)}},
		"unknown and there later":    {adds: []add{a(1, 0), a(1, 2)}, reads: []read{r(3, 4, at(3), 4), r(5, 6, at(5), 5)}},
		"there before it was sent":   {adds: []add{a(8, 9)}, reads: []read{r(3, 4, at(3), 1)}, up: "must come after", apart: "must come after"},
		"back":                       {adds: []add{a(1, 9)}, reads: []read{r(2, 3, at(2), 1), r(4, 5, at(4), 0)}, up: "lacks", apart: "lacks"},
		"forked":                     {adds: []add{a(1, 9), a(1, 9)}, reads: []read{r(2, 5, at(2), 1), r(2, 5, at(3), 4)}, up: "lacks", apart: "lacks"},
		"forked, whatever as_of":     {adds: []add{a(1, 9), a(1, 9)}, reads: []read{r(2, 5, at(3), 1), r(2, 5, at(3), 4)}, up: "no order", apart: "no order"},
		"order of answered":          {adds: []add{a(1, 2), a(4, 9)}, reads: []read{r(1, 8, at(5), 4)}, up: "must come after"},
		"as old as permitted":        {adds: []add{a(1, 2)}, reads: []read{stale(5, 4, at(1), 0), stale(5, 4, at(3), 1)}},
		"older than permitted":       {adds: []add{a(1, 2)}, reads: []read{stale(5, 2, at(4), 0)}, up: "must come after"},
		"as_of older than permitted": {adds: []add{a(1, 9)}, reads: []read{stale(5, 2, at(2), 0)}, up: "at most", apart: "at most"},
		"counted twice":              {adds: []add{a(1, 2)}, reads: []read{r(3, 4, at(3), 2)}, showProblem: "2 times"},
		"never sent":                 {adds: []add{a(1, 2)}, reads: []read{r(3, 4, at(3), 1+4)}, showProblem: "nobody sent"},
		"negative":                   {adds: []add{a(1, 2)}, reads: []read{r(3, 4, at(3), -1)}, showProblem: "nobody sent"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := &history{counter: "a", adds: tt.adds}
			for _, r := range tt.reads {
				says(t, "show", h.show(r), tt.showProblem)
			}
			if tt.showProblem == "" {
				says(t, "where 202 means counted", h.check(true, 0), tt.up)
				says(t, "where 202 means safe", h.check(false, 0), tt.apart)
			}
		})
	}
}

func says(t *testing.T, what string, err error, want string) {
	t.Helper()
	if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
		t.Errorf("%s: got %v, want %q", what, err, want)
	}
}
