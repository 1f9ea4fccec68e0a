package api

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/internal/auth"
	"github.com/countmill/countmill/internal/httpserver"
	"github.com/countmill/countmill/reader"
)

const (
	// maxMetrics is the most counters of one answer to GET /metrics/counters.
	maxMetrics = 10_000

	defaultMetrics = 1000
)

// A scrape gathers totals for Prometheus.
type scrape struct {
	reader    Reader
	minAsOf   time.Time
	limit     int
	totals    map[string]int64
	overflow  map[string]bool // counters left out: no total that fits 64 bits
	asOf      time.Time       // the oldest
	truncated bool            // more match than limit
}

// scrapeCounters answers with totals as Prometheus text.
func (a *API) scrapeCounters(c call) error {
	text, truncated, err := a.gather(c)
	if err != nil {
		return err
	}
	c.w.Header().Set("Countmill-Truncated", strconv.FormatBool(truncated))
	return a.writeLarge(c, "text/plain; version=0.0.4; charset=utf-8", text)
}

// large takes room for an answer of up to some MiB.
func (a *API) large(c call, size int) (give func(), err error) {
	return a.pools.take(unread, sharesAs(c), size)
}

// writeLarge writes a large answer that is not a JSON value.
func (a *API) writeLarge(c call, contentType string, text []byte) error {
	give, err := a.large(c, len(text))
	if err != nil {
		return err
	}
	defer give()
	httpserver.HurryReader(c.w, len(text))
	header := c.w.Header()
	header.Set("Content-Type", contentType)
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Content-Length", strconv.Itoa(len(text)))
	c.w.Write(text) // an error means that the client is gone
	return nil
}

// gather makes the answer. Few are made at once; how long a client takes to read one does not
// count, or clients that do not read would keep others from asking.
func (a *API) gather(c call) (text []byte, truncated bool, err error) {
	ctx, cancel := context.WithTimeout(c.ctx, a.cfg.Timeout)
	defer cancel()
	give, err := a.pools.take(scrapes, sharesAs(c), 1)
	if err != nil {
		return nil, false, err
	}
	defer give()
	s, err := a.scrape(ctx, c)
	if err != nil {
		return nil, false, err
	}
	return s.text(a.services.Reader.Pipeline(ctx)), s.truncated, nil
}

func (a *API) scrape(ctx context.Context, c call) (*scrape, error) {
	maxStaleness, minAsOf, err := freshness(c.params)
	if err != nil {
		return nil, err
	}
	names, prefixes, err := parseMatches(c.caller(), c.params.Values["match"])
	if err != nil {
		return nil, err
	}
	s := &scrape{reader: a.services.Reader, minAsOf: minAsOf, limit: c.number("limit"), totals: make(map[string]int64), overflow: make(map[string]bool)}
	if err := s.readNames(ctx, names, maxStaleness); err != nil {
		return nil, err
	}
	for _, prefix := range prefixes {
		if err := s.readPrefix(ctx, prefix); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// parseMatches returns the distinct names and prefixes. It narrows each prefix to the counters
// that the caller may see.
func parseMatches(caller auth.Caller, matches []string) (names, prefixes []string, err error) {
	if err := checkCount("match", len(matches), maxQuery); err != nil {
		return nil, nil, err
	}
	for _, match := range matches {
		prefix, isPrefix := strings.CutSuffix(match, "*")
		if !isPrefix {
			if err := checkMatch(caller, match); err != nil {
				return nil, nil, err
			}
			names = append(names, match)
			continue
		}
		if len(prefix) > countmill.MaxCounterName || !utf8.ValidString(prefix) {
			return nil, nil, &countmill.FieldError{Field: "match", Problem: "is no prefix of a counter's name", Limit: "up to 500 bytes of UTF-8 before the *"}
		}
		ranges, err := caller.Ranges("match", prefix)
		if err != nil {
			return nil, nil, err
		}
		prefixes = append(prefixes, ranges...)
	}
	slices.Sort(names)
	return slices.Compact(names), uncovered(prefixes), nil
}

// uncovered leaves out each prefix that begins with another one: its counters come with that.
func uncovered(prefixes []string) []string {
	slices.Sort(prefixes)
	kept := prefixes[:0]
	for _, p := range prefixes {
		if len(kept) == 0 || !strings.HasPrefix(p, kept[len(kept)-1]) {
			kept = append(kept, p)
		}
	}
	return kept
}

func checkMatch(caller auth.Caller, name string) error {
	err := countmill.CheckName(name)
	if field, ok := errors.AsType[*countmill.FieldError](err); ok {
		field.Field = "match"
		return field
	}
	return checkField(caller, "match", name)
}

// readNames reads counters that are asked for by name, even if they do not exist. A counter
// without a total does not keep the others from being read.
func (s *scrape) readNames(ctx context.Context, names []string, maxStaleness time.Duration) error {
	for len(names) > 0 {
		ts, err := s.reader.TotalsSince(ctx, names, maxStaleness, s.minAsOf)
		if none, ok := errors.AsType[*reader.NotServingError](err); ok && slices.Contains(names, none.Group) {
			names = slices.DeleteFunc(names, func(name string) bool { return name == none.Group })
			continue
		}
		if withoutTotals(err) {
			return err
		}
		for _, t := range ts {
			if t.Overflow {
				s.overflow[t.Counter] = true
				continue
			}
			s.add(t)
		}
		return nil
	}
	return nil
}

// readPrefix reads, page by page, the counters that are not there yet.
func (s *scrape) readPrefix(ctx context.Context, prefix string) error {
	after := ""
	for !s.truncated {
		p, err := s.reader.ListSince(ctx, prefix, after, min(reader.MaxPage, s.limit+1), s.minAsOf)
		if err != nil {
			return err
		}
		for _, name := range p.Overflowed {
			s.overflow[name] = true
		}
		for _, t := range p.Totals {
			s.add(t)
		}
		if after = p.Next; after == "" {
			return nil
		}
	}
	return nil
}

func (s *scrape) add(t reader.Total) {
	if _, ok := s.totals[t.Counter]; !ok && len(s.totals) == s.limit {
		s.truncated = true
		return
	}
	s.totals[t.Counter] = t.Total
	if s.asOf.IsZero() || t.AsOf.Before(s.asOf) {
		s.asOf = t.AsOf
	}
}

// labelEscaper escapes a label's value.
var labelEscaper = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)

// text is the exposition format, version 0.0.4. Totals are gauges: they can fall.
func (s *scrape) text(p reader.Pipeline) []byte {
	var b bytes.Buffer
	if s.truncated {
		fmt.Fprintf(&b, "# truncated: more counters match than the limit of %d; narrow match, or raise limit (at most %d)\n", s.limit, maxMetrics)
	}
	head := func(name, help string) { fmt.Fprintf(&b, "# HELP %s %s\n# TYPE %s gauge\n", name, help, name) }
	if len(s.totals) > 0 {
		head("countmill_value", "Total of a counter.")
	}
	for _, name := range slices.Sorted(maps.Keys(s.totals)) {
		b.WriteString(`countmill_value{counter="`)
		_, _ = labelEscaper.WriteString(&b, name)
		b.WriteString(`"} `)
		b.Write(strconv.AppendInt(b.AvailableBuffer(), s.totals[name], 10))
		b.WriteByte('\n')
	}
	gauge := func(name, help string, value float64) {
		head(name, help)
		fmt.Fprintf(&b, "%s %s\n", name, strconv.FormatFloat(value, 'f', -1, 64))
	}
	if !s.asOf.IsZero() {
		gauge("countmill_counters_as_of_timestamp_seconds", "When the oldest of these totals was true.", float64(s.asOf.UnixMicro())/1e6)
	}
	if lag := lagOf(p); lag != nil {
		gauge("countmill_counters_lag_seconds", "Age of the oldest increment that an aggregator holds uncommitted.", *lag)
	}
	gauge("countmill_counters_truncated", "Whether more counters match than the limit; 1: some are missing.", map[bool]float64{true: 1}[s.truncated])
	gauge("countmill_counters_overflowed", "Counters left out because their totals do not fit 64 bits.", float64(len(s.overflow)))
	return b.Bytes()
}
