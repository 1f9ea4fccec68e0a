package system

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// Metrics returns the metrics of a countmill process at /metrics, by name and labels.
func Metrics(ctx context.Context, addr string) (map[string]float64, error) {
	all := make(map[string]float64)
	err := getHTTP(ctx, "http://"+addr+"/metrics", func(body io.Reader) error {
		lines := bufio.NewScanner(body)
		for lines.Scan() {
			if strings.HasPrefix(lines.Text(), "#") {
				continue
			}
			at := strings.LastIndexByte(lines.Text(), ' ')
			value, err := strconv.ParseFloat(lines.Text()[at+1:], 64)
			if err != nil {
				return fmt.Errorf("%s: %w", addr, err)
			}
			all[lines.Text()[:at]] = value
		}
		return lines.Err()
	})
	return all, err
}

// Metrics returns the sums of all aggregators' metrics.
func (g *Google) Metrics(ctx context.Context) (map[string]float64, error) {
	sum := make(map[string]float64)
	for _, addr := range g.metrics {
		one, err := Metrics(ctx, addr)
		if err != nil {
			return nil, err
		}
		for name, value := range one {
			sum[name] += value
		}
	}
	return sum, nil
}
