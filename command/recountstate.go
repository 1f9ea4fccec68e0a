package command

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"

	"github.com/countmill/countmill/client"
	"github.com/countmill/countmill/command/cli"
)

// A recountState is how far a recount is. --state has it in a file, which is replaced after each range.
type recountState struct {
	Server  string          `json:"server"`  // another one may have another journal
	Request json.RawMessage `json:"request"` // the query of the recount
	Ranges  []recountRange  `json:"ranges"`

	Counters   int               `json:"counters"`
	Buckets    int               `json:"buckets"`
	Opened     int               `json:"opened"`
	Findings   int               `json:"findings"`
	Fixed      int               `json:"fixed"`
	NotCovered map[string]int    `json:"not_covered"`
	Examples   map[string]string `json:"examples"` // a name for each reason
}

// A recountRange is a part of the counters, which one worker recounts range by range.
type recountRange struct {
	Range string `json:"range"` // the next one
	Over  bool   `json:"over"`
	// The places of the range are from Begin to End, and it is done up to Done, in thousandths.
	Begin int64 `json:"begin"`
	End   int64 `json:"end"`
	Done  int64 `json:"done"`

	shown, entries int64 // of the bar
}

// newRecount divides all places evenly. One range has the empty range, which servers without ranges know too.
func newRecount(server string, request []byte, n int) recountState {
	s := recountState{Server: server, Request: request, Ranges: make([]recountRange, n), NotCovered: make(map[string]int), Examples: make(map[string]string)}
	size := uint64(math.MaxUint64)/uint64(n) + 1
	for i := range s.Ranges {
		x := &s.Ranges[i]
		if x.Begin, x.End = int64(1000*i/n), int64(1000*(i+1)/n); n > 1 {
			x.Range = fmt.Sprintf("%016x-%016x", uint64(i)*size, min(uint64(i)*size, math.MaxUint64-(size-1))+(size-1))
		}
		x.Done = x.Begin
	}
	return s
}

// loadRecount returns the state in the file, or a new one. An empty path names no file.
func loadRecount(path, server string, request []byte, parallel int) (recountState, error) {
	if path == "" {
		return newRecount(server, request, parallel), nil
	}
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return newRecount(server, request, parallel), nil
	}
	if err != nil {
		return recountState{}, err
	}
	var s recountState
	if err := json.Unmarshal(text, &s); err != nil || len(s.Ranges) == 0 || s.NotCovered == nil || s.Examples == nil {
		return s, cli.Usagef("--state: %s does not hold the state of a recount", path)
	}
	if s.Server != server || !bytes.Equal(s.Request, request) {
		return s, cli.Usagef("--state: %s is of the recount %s at %s, and this one is %s at %s; finish that one, or name another file", path, s.Request, s.Server, request, server)
	}
	for i := range s.Ranges {
		s.Ranges[i].shown = s.Ranges[i].Begin
	}
	return s, nil
}

// add takes the counts of a range.
func (s *recountState) add(page *client.Recounted) {
	s.Counters, s.Buckets, s.Opened = s.Counters+page.Counters, s.Buckets+page.Buckets, s.Opened+page.Opened
	for reason, n := range page.NotCovered {
		s.NotCovered[reason] += n
	}
	for _, n := range page.NotCoveredNames {
		if s.Examples[n.Reason] == "" {
			s.Examples[n.Reason] = n.Counter
		}
	}
	s.Findings += len(page.Findings)
	for _, f := range page.Findings {
		if f.Fixed {
			s.Fixed++
		}
	}
}
