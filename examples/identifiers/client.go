package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// A client calls countmill over HTTP.
type client struct {
	base string
	http *http.Client
}

func newClient(base string) *client {
	return &client{base: strings.TrimSuffix(base, "/"), http: &http.Client{Timeout: 30 * time.Second}}
}

// post returns how many increments were accepted.
func (c *client) post(ctx context.Context, b body) (int64, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.base+"/v1/increments", bytes.NewReader(b.lines))
	if err != nil {
		return 0, err
	}
	req.Header.Set("Content-Type", "application/x-ndjson")
	req.Header.Set("Idempotency-Key", b.key)
	var answer struct {
		Accepted int64 `json:"accepted"`
	}
	return answer.Accepted, c.do(req, http.StatusAccepted, func(r io.Reader) error {
		return json.NewDecoder(r).Decode(&answer)
	})
}

func (c *client) get(ctx context.Context, path string, read func(io.Reader) error) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.base+path, nil)
	if err != nil {
		return err
	}
	return c.do(req, http.StatusOK, read)
}

func (c *client) do(req *http.Request, want int, read func(io.Reader) error) error {
	res, err := c.http.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != want {
		text, _ := io.ReadAll(io.LimitReader(res.Body, 4096))
		return &statusError{status: res.StatusCode, body: string(text)}
	}
	return read(res.Body)
}

type total struct {
	Counter string `json:"counter"`
	Total   int64  `json:"total"`
	Exists  bool   `json:"exists"`
}

// A page is a page of GET /v1/counters.
type page struct {
	Totals []total `json:"totals"`
	Next   string  `json:"next_page_token"`
}

func (c *client) page(ctx context.Context, prefix, token string, limit int) (page, error) {
	query := url.Values{"prefix": {prefix}, "limit": {strconv.Itoa(limit)}}
	if token != "" {
		query.Set("page_token", token)
	}
	var p page
	err := c.get(ctx, "/v1/counters?"+query.Encode(), func(r io.Reader) error {
		return json.NewDecoder(r).Decode(&p)
	})
	return p, err
}

// patient repeats a call if the store is too busy to answer in time.
func patient(ctx context.Context, ask func() error) error {
	for tries := 1; ; tries++ {
		err := ask()
		var status *statusError
		if err == nil || tries == 20 || !errors.As(err, &status) || !status.repeat() {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Second):
		}
	}
}

// totals lists every counter under prefix.
func (c *client) totals(ctx context.Context, prefix string) (map[string]int64, error) {
	totals := make(map[string]int64)
	for token := ""; ; {
		var p page
		err := patient(ctx, func() (err error) {
			p, err = c.page(ctx, prefix, token, 500)
			return err
		})
		if err != nil {
			return nil, err
		}
		for _, t := range p.Totals {
			if _, ok := totals[t.Counter]; ok {
				return nil, fmt.Errorf("counter %s is listed twice", t.Counter)
			}
			totals[t.Counter] = t.Total
		}
		if p.Next == "" {
			return totals, nil
		}
		token = p.Next
	}
}

// maxNames is the most names of one POST /v1/totals.
const maxNames = 1000

// named reads the totals of up to maxNames counters. With an empty staleness the server's default
// decides how old they may be.
func (c *client) named(ctx context.Context, counters []string, staleness string) ([]total, error) {
	body, err := json.Marshal(map[string][]string{"counters": counters})
	if err != nil {
		return nil, err
	}
	path := "/v1/totals"
	if staleness != "" {
		path += "?" + url.Values{"max_staleness": {staleness}}.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.base+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	var answer struct {
		Totals []total `json:"totals"`
	}
	err = c.do(req, http.StatusOK, func(r io.Reader) error { return json.NewDecoder(r).Decode(&answer) })
	if err == nil && len(answer.Totals) != len(counters) {
		err = fmt.Errorf("%d totals for %d counters", len(answer.Totals), len(counters))
	}
	return answer.Totals, err
}

// mustBeEmpty refuses a server that has counters under prefix: their totals would look like a
// difference.
func (c *client) mustBeEmpty(ctx context.Context, prefix string) error {
	p, err := c.page(ctx, prefix, "", 1)
	if err != nil {
		return fmt.Errorf("is countmill running at %s? %w", c.base, err)
	}
	if len(p.Totals) > 0 {
		return fmt.Errorf("there are counters under %q already: choose another --prefix", prefix)
	}
	return nil
}

// metrics reads /metrics and sums each of the named metrics over its labels.
func (c *client) metrics(ctx context.Context, names []string) (map[string]float64, error) {
	sums := make(map[string]float64)
	err := c.get(ctx, "/metrics", func(r io.Reader) error {
		lines := bufio.NewScanner(r)
		for lines.Scan() {
			series, value, _ := strings.Cut(lines.Text(), " ")
			if strings.HasPrefix(series, "#") {
				continue
			}
			if i := strings.LastIndexByte(lines.Text(), '}'); i >= 0 {
				series, value = lines.Text()[:i], strings.TrimSpace(lines.Text()[i+1:])
			}
			name, _, _ := strings.Cut(series, "{")
			for _, want := range names {
				if name == want {
					v, err := strconv.ParseFloat(value, 64)
					if err != nil {
						return fmt.Errorf("metric %s: %w", name, err)
					}
					sums[name] += v
				}
			}
		}
		return lines.Err()
	})
	return sums, err
}
