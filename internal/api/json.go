package api

import (
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/countmill/countmill/internal/httpserver"
	"github.com/countmill/countmill/reader"
)

// totals is an answer, which clients see as {"totals": [...], "lag": 0.1}. It is written
// without encoding/json, which costs more than finding a total in the cache.
type totals struct {
	totals      []reader.Total
	quoted      bool     // totals are strings
	lag         *float64 // seconds; nil if no aggregator is fresh
	unseen      *float64 // seconds; nil if the bus cannot say
	after       bool     // they were asked for by a receipt
	deadLetters []reader.DeadLetterRef
}

// A counter is the only one of totals, with lag among its members.
type counter totals

// AppendJSON makes it an httpserver.Appender.
func (t *totals) AppendJSON(b []byte) []byte {
	b = append(b, `{"totals":`...)
	b = appendTotals(b, t.totals, t.quoted)
	return append(t.appendRest(b), '}')
}

// AppendJSON makes it an httpserver.Appender.
func (c *counter) AppendJSON(b []byte) []byte {
	b = appendTotal(append(b, '{'), &c.totals[0], c.quoted)
	return append((*totals)(c).appendRest(b), '}')
}

// appendRest appends the members beside the totals.
func (t *totals) appendRest(b []byte) []byte {
	b = appendSeconds(append(b, `,"lag":`...), t.lag)
	if t.unseen != nil {
		b = appendSeconds(append(b, `,"unseen":`...), t.unseen)
	}
	if !t.after {
		return b
	}
	b = append(b, `,"dead_letters":[`...)
	for i, s := range t.deadLetters {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendString(append(b, `{"key":`...), s.Key)
		b = strconv.AppendBool(append(b, `,"discarded":`...), s.Discarded)
		b = append(b, '}')
	}
	return append(b, ']')
}

func appendTotals(b []byte, ts []reader.Total, quoted bool) []byte {
	b = append(b, '[')
	for i := range ts {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(appendTotal(append(b, '{'), &ts[i], quoted), '}')
	}
	return append(b, ']')
}

// appendTotal appends the members of a total.
func appendTotal(b []byte, t *reader.Total, quoted bool) []byte {
	b = appendString(append(b, `"counter":`...), t.Counter)
	b = append(b, `,"total":`...)
	if t.Overflow {
		b = append(b, `null,"error":"`+httpserver.TypePrefix+`overflow"`...)
	} else {
		b = appendQuoted(b, t.Total, quoted)
	}
	b = append(b, `,"as_of":"`...)
	b = appendTime(b, t.AsOf)
	b = appendString(append(b, `","source":`...), t.Source)
	b = strconv.AppendInt(append(b, `,"shards":`...), int64(t.Shards), 10)
	b = strconv.AppendBool(append(b, `,"exists":`...), t.Exists)
	if !t.Checked.IsZero() {
		b = append(appendTime(append(b, `,"checked_at":"`...), t.Checked), '"')
	}
	if !t.Exists && strings.Contains(t.Counter, ",") {
		b = append(b, `,"hint":"`+listHint+`"`...)
	}
	return b
}

// listHint is for clients that join names: a name may hold commas, and so nothing splits it.
const listHint = "this is one name with a comma in it; to ask for several counters repeat the parameter, or send each as a string of its own"

// appendTime appends RFC 3339 in UTC with microseconds, always six digits. Package time is
// quick with its own RFC 3339 only.
func appendTime(b []byte, t time.Time) []byte {
	b = t.UTC().AppendFormat(b, time.RFC3339)
	b[len(b)-1] = '.' // a Z before
	for unit, rest := 100_000, t.Nanosecond()/1000; unit > 0; unit /= 10 {
		b = append(b, '0'+byte(rest/unit%10))
	}
	return append(b, 'Z')
}

func appendString(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c == '"' || c == '\\' || c > '~' {
			b, _ = jsontext.AppendQuote(b, s) // the error is about bytes that are not UTF-8, which it replaces
			return b
		}
	}
	b = append(b, '"')
	b = append(b, s...)
	return append(b, '"')
}

// appendSeconds appends what lagOf gave: never so large or small that it needs an exponent.
func appendSeconds(b []byte, s *float64) []byte {
	if s == nil {
		return append(b, "null"...)
	}
	return strconv.AppendFloat(b, *s, 'f', -1, 64)
}

// unseen is in seconds, to the microsecond; nil if the bus cannot say.
func (a *API) unseen() *float64 {
	if a.services.Unseen == nil {
		return nil
	}
	return secondsOf(a.services.Unseen())
}

// lagOf is the lag in seconds, to the microsecond; nil if it is unknown.
func lagOf(p reader.Pipeline) *float64 {
	if !p.LagKnown() {
		return nil
	}
	return secondsOf(p.Lag)
}

func secondsOf(d time.Duration) *float64 {
	s := math.Round(float64(d)/float64(time.Microsecond)) / 1e6
	return &s
}
