package system

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"time"

	"github.com/countmill/countmill/bench/internal/load"
	"github.com/countmill/countmill/bench/internal/server"
	"github.com/countmill/countmill/client"
)

const (
	bodyLines   = 50_000 // increments in an NDJSON body
	bodyConns   = 8
	acceptedUp  = "202: folded into Pebble, synced to disk, counted exactly once, in the total"
	acceptedNot = "202: the body was read, and nothing else happened"
)

func httpSystems() []System {
	all := []System{{
		Name: "http/ndjson", Ack: acceptedUp, Loads: names, Family: "http/ndjson", Against: "redis/pipelined", Version: goVersion,
		How:  fmt.Sprintf("`countmill up`, a process of its own; NDJSON bodies of %d increments made beforehand, %d connections", bodyLines, bodyConns),
		Open: openHTTP("up", bodyConns, bodyLines),
	}}
	for _, conns := range []int{64, 256} {
		for _, s := range []struct{ server, ack, about string }{
			{"bare", acceptedNot, "a bare net/http handler that reads the body"},
			{"decode", "202: decoded and checked by countmill's ingest, and dropped", "countmill's ingest in front of nothing"},
			{"up", acceptedUp, "`countmill up`"},
		} {
			all = append(all, System{
				Name: fmt.Sprintf("http/one/%d/%s", conns, s.server), Ack: s.ack, Loads: hot,
				How:    fmt.Sprintf("%s, a process of its own; one increment a request, %d connections, by wrk -t 2 where it is installed, else by a client of our own", s.about, conns),
				Family: fmt.Sprintf("http/one/%d/%s", conns, s.server), Against: fmt.Sprintf("http/one/%d/bare", conns),
				Version: httpVersion, Open: openHTTP(s.server, conns, 1),
			})
		}
	}
	return all
}

func httpVersion() (string, error) {
	client := "a client of our own"
	if path, err := server.Find("wrk"); err == nil {
		if client, err = server.Says(path, "-v"); err != nil {
			return "", err
		}
	}
	version, err := goVersion()
	return version + ", " + client, err
}

func openHTTP(kind string, conns, lines int) func(context.Context, Place) (Instance, error) {
	return func(ctx context.Context, at Place) (Instance, error) {
		h := &httpServer{kind: kind, conns: conns, lines: lines, dir: at.Dir}
		return opened(h, h.open(ctx, at))
	}
}

// httpServer is a process that accepts increments over HTTP.
type httpServer struct {
	closers
	kind         string // bare, decode or up
	conns, lines int
	addr, dir    string
	requests     [][]byte
	reported     int64 // by wrk
	byWrk        bool
}

func (h *httpServer) open(ctx context.Context, at Place) error {
	addr, _, err := server.FreeAddr()
	if err != nil {
		return err
	}
	h.addr = addr
	spec := server.Spec{
		Name: h.kind, Path: at.Self, Dir: at.Dir, Args: []string{"serve-http", h.kind, addr},
		Ready: Answers("http://" + addr + "/readyz"),
	}
	if h.kind == "up" {
		spec.Path, spec.Args = at.Countmill, []string{"up", "--listen", addr, "--data", filepath.Join(at.Dir, "data")}
	}
	p, err := server.Start(ctx, spec)
	if err != nil {
		return err
	}
	h.add(p.Stop)
	h.requests = requests(at.Load, addr, h.lines)
	return nil
}

// Answers is a server.Spec's Ready for a server that is ready when a URL answers 200.
func Answers(url string) func(context.Context) error {
	return func(ctx context.Context) error {
		return getHTTP(ctx, url, func(io.Reader) error { return nil })
	}
}

func getHTTP(ctx context.Context, url string, read func(io.Reader) error) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", url, resp.Status)
	}
	return read(resp.Body)
}

// requests returns whole HTTP requests, one for each lines increments of the order; with one increment
// a request, a single one.
func requests(l *load.Load, addr string, lines int) [][]byte {
	if lines == 1 {
		return [][]byte{request(addr, "application/json", []byte(object(l.Names[0])))}
	}
	all := make([][]byte, 0, len(l.Order)/lines)
	var body bytes.Buffer
	for at := 0; at < len(l.Order); at += lines {
		body.Reset()
		for _, n := range l.Order[at : at+lines] {
			body.WriteString(object(l.Names[n]) + "\n")
		}
		all = append(all, request(addr, "application/x-ndjson", body.Bytes()))
	}
	return all
}

func object(name string) string { return `{"counter":"` + name + `"}` }

func request(addr, contentType string, body []byte) []byte {
	head := fmt.Sprintf("POST /v1/increments HTTP/1.1\r\nHost: %s\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n", addr, contentType, len(body))
	return append([]byte(head), body...)
}

// Count sends requests, on each connection one after another.
func (h *httpServer) Count(ctx context.Context, r *load.Run) error {
	if h.lines == 1 {
		if path, err := server.Find("wrk"); err == nil {
			return h.wrk(ctx, path, r)
		}
	}
	return h.send(ctx, r)
}

func (h *httpServer) send(ctx context.Context, r *load.Run) error {
	defer r.Stop()
	conns := make([]*bufio.ReadWriter, h.conns)
	for i := range conns {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", h.addr)
		if err != nil {
			return err
		}
		defer conn.Close()
		if err := conn.SetDeadline(time.Now().Add(r.Goal.Most + time.Minute)); err != nil {
			return err
		}
		conns[i] = bufio.NewReadWriter(bufio.NewReader(conn), bufio.NewWriterSize(conn, 64<<10))
	}
	return r.Walk(ctx, h.conns, h.lines, func(_ context.Context, worker, at int, _ []uint32) error {
		conn := conns[worker]
		if _, err := conn.Write(h.requests[at/h.lines%len(h.requests)]); err != nil {
			return err
		}
		if err := conn.Flush(); err != nil {
			return err
		}
		return accepted(conn.Reader)
	})
}

// accepted reads an answer.
func accepted(in *bufio.Reader) error {
	resp, err := http.ReadResponse(in, nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusAccepted {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 1000))
		return fmt.Errorf("%s: %s", resp.Status, text)
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return err
}

var (
	wrkDone   = regexp.MustCompile(`(\d+) requests in `)
	wrkRate   = regexp.MustCompile(`Requests/sec:\s+([\d.]+)`)
	wrkFailed = regexp.MustCompile(`(?m)^\s*(Socket errors|Non-2xx).*$`)
)

// wrk uses wrk's own figure for the rate.
func (h *httpServer) wrk(ctx context.Context, path string, r *load.Run) error {
	h.byWrk = true
	script := filepath.Join(h.dir, "post.lua")
	text := fmt.Sprintf("wrk.method = \"POST\"\nwrk.headers[\"Content-Type\"] = \"application/json\"\nwrk.body = %q\n", object(r.Names[0]))
	if err := os.WriteFile(script, []byte(text), 0o600); err != nil {
		return err
	}
	requests, rate, err := Wrk(ctx, path, h.conns, r.Goal.Least, script, "http://"+h.addr+"/v1/increments")
	if err != nil {
		return err
	}
	h.reported = requests
	r.Foreign(requests, time.Duration(float64(requests)/rate*float64(time.Second)))
	return nil
}

// Wrk makes wrk send requests for that time, at least a second. It returns how many were answered, and
// how many a second. An answer without success is an error.
func Wrk(ctx context.Context, path string, conns int, lasts time.Duration, script, url string) (requests int64, rate float64, err error) {
	seconds := int(math.Ceil(max(1, lasts.Seconds())))
	out, err := server.Output(ctx, exec.Command(path, "-t", "2", "-c", strconv.Itoa(conns), "-d", strconv.Itoa(seconds)+"s",
		"--timeout", "30s", "-s", script, url))
	if err != nil {
		return 0, 0, err
	}
	if failed := wrkFailed.Find(out); failed != nil {
		return 0, 0, fmt.Errorf("wrk: %s", bytes.TrimSpace(failed))
	}
	done, each := wrkDone.FindSubmatch(out), wrkRate.FindSubmatch(out)
	if done == nil || each == nil {
		return 0, 0, fmt.Errorf("wrk says %q", out)
	}
	if requests, err = strconv.ParseInt(string(done[1]), 10, 64); err != nil {
		return 0, 0, err
	}
	if rate, err = strconv.ParseFloat(string(each[1]), 64); err != nil || rate <= 0 {
		return 0, 0, fmt.Errorf("wrk says %q: %w", out, err)
	}
	return requests, rate, nil
}

// Check reads the totals from the server. When wrk stops, each connection has a request that is counted
// and not reported.
func (h *httpServer) Check(ctx context.Context, r *load.Run) error {
	totals := h.totals
	if h.kind != "up" {
		totals = h.seen
	}
	if !h.byWrk {
		return r.Check(ctx, totals)
	}
	got, err := totals(ctx, r.Names)
	if err != nil {
		return err
	}
	if got[0] < h.reported || got[0] > h.reported+int64(h.conns) || h.reported == 0 {
		return fmt.Errorf("%w: wrk had %d answers on %d connections, the total is %d", load.ErrWrong, h.reported, h.conns, got[0])
	}
	return nil
}

// seen returns how many requests a server has answered that counts nothing else.
func (h *httpServer) seen(ctx context.Context, names []string) ([]int64, error) {
	if len(names) != 1 {
		return nil, errors.New("it has one total")
	}
	got := make([]int64, 1)
	err := getHTTP(ctx, "http://"+h.addr+"/seen", func(body io.Reader) error { return json.NewDecoder(body).Decode(&got[0]) })
	return got, err
}

func (h *httpServer) totals(ctx context.Context, names []string) ([]int64, error) {
	return Totals(ctx, h.addr, names)
}

// Totals reads the totals from a server, which must read its store for them.
func Totals(ctx context.Context, addr string, names []string) ([]int64, error) {
	return totals(ctx, addr, names, client.WithMaxStaleness(0))
}

// TotalsAfter reads totals that contain the increments of a receipt, and waits for them as long as a
// reader does.
func TotalsAfter(ctx context.Context, addr, receipt string, names []string) ([]int64, error) {
	return totals(ctx, addr, names, client.WithAfter(receipt, 5*time.Second))
}

func totals(ctx context.Context, addr string, names []string, option client.ReadOption) ([]int64, error) {
	c, err := client.New("http://" + addr)
	if err != nil {
		return nil, err
	}
	defer c.CloseIdleConnections()
	totals, err := c.Totals(ctx, names, option)
	got := make([]int64, len(totals))
	for i, t := range totals {
		got[i] = t.Total
	}
	return got, err
}
