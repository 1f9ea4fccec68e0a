package memcached

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/countmill/countmill/backend"
)

// checkMemcached is the check of an examination.
const checkMemcached = "memcached"

const (
	// examTimeout bounds the conversation with one server.
	examTimeout = 5 * time.Second
	// mostStats is the most bytes of a server's answer.
	mostStats = 64 << 10
	// evictedPart of all stored values may be evicted without a finding. A guess.
	evictedPart = 10
)

// safe is the first version that does not answer UDP by default.
var safe = []int{1, 5, 6}

// Examine asks each server for its version and for its evictions. It neither reads nor writes totals.
func Examine(ctx context.Context, servers []string, r *backend.Report) {
	for _, server := range servers {
		stats, err := statsOf(ctx, server)
		if err != nil {
			r.Find(backend.Finding{
				Check: checkMemcached, What: fmt.Sprintf("memcached %s does not answer: %v.", server, err),
				Why: "Readers read the store instead, which costs reads and time.", Do: "Start it, or fix the address in --cache.", Page: "runbook.md#countmillcacheerrors",
			})
			continue
		}
		r.Done(checkMemcached, server+" "+stats["version"])
		examine(server, stats, r)
	}
}

func examine(server string, stats map[string]string, r *backend.Report) {
	if old(stats["version"]) {
		r.Find(backend.Finding{
			Check: checkMemcached, What: fmt.Sprintf("memcached %s has version %s.", server, stats["version"]),
			Why: "Before 1.5.6 it answers UDP of anybody by default, which attackers use.", Do: "Install a newer one.", Page: "runbook.md#countmillcacheerrors",
		})
	}
	evicted, stored := number(stats["evictions"]), number(stats["total_items"])
	if evicted > 0 && evicted > stored/evictedPart {
		r.Find(backend.Finding{
			Check: checkMemcached, What: fmt.Sprintf("memcached %s has evicted %d of %d values since it started.", server, evicted, stored),
			Why: "A total that is gone is read from the store again.", Do: "Give it more memory (-m), or a machine of its own.", Page: "runbook.md#countmillcacheerrors",
		})
	}
}

// statsOf returns the server's statistics, version among them.
func statsOf(ctx context.Context, server string) (map[string]string, error) {
	ctx, cancel := context.WithTimeout(ctx, examTimeout)
	defer cancel()
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", server)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	if deadline, ok := ctx.Deadline(); ok {
		if err := c.SetDeadline(deadline); err != nil {
			return nil, err
		}
	}
	if _, err := io.WriteString(c, "stats\r\n"); err != nil {
		return nil, err
	}
	stats := make(map[string]string)
	for lines := bufio.NewScanner(io.LimitReader(c, mostStats)); lines.Scan(); {
		line := strings.TrimSpace(lines.Text())
		if line == "END" {
			return stats, nil
		}
		words := strings.SplitN(line, " ", 3)
		if len(words) != 3 || words[0] != "STAT" {
			return nil, fmt.Errorf("it answered %.40q", line)
		}
		stats[words[1]] = words[2]
	}
	return nil, fmt.Errorf("its answer to stats did not end within %s", examTimeout)
}

// old reports whether a version is before safe. It says no of a version that it cannot read.
func old(version string) bool {
	for i, piece := range strings.SplitN(version, ".", len(safe)) {
		n, err := strconv.Atoi(piece)
		if err != nil || n != safe[i] {
			return err == nil && n < safe[i]
		}
	}
	return false
}

func number(text string) int64 {
	n, _ := strconv.ParseInt(text, 10, 64) // 0 if the server does not say
	return n
}
