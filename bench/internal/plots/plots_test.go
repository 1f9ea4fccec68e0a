package plots

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Each plot is an SVG with its axes, units and legend, and without a white background.
func TestRun(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	row := `{"table":%q,"x":%d,"increments":1000000,"shards_written":%d,"markers_written":400,"commits":90}`
	counters, messages := "by number of counters: 100,000/s from 10 publishers, uniform", "by size of messages: Zipf, 100,000/s from 10 publishers"
	args := []string{"-out", dir,
		"-peers", write("peers.json", `{"results":[{"system":"countmill/name","load":"hot","per_second":2e7},{"system":"redis/one","load":"hot","per_second":1e5},{"system":"redis/one","load":"hot","per_second":2e5},{"system":"gone","load":"hot"}]}`),
		"-cost", write("cost.json", `{"rows":[`+fmt.Sprintf(row, counters, 1, 90)+","+fmt.Sprintf(row, counters, 1000, 90_000)+","+fmt.Sprintf(row, messages, 10, 5000)+","+fmt.Sprintf(row, messages, 100, 500)+`]}`),
		"-billion", write("billion.json", `{"kills":[1.5],"samples":[{"seconds":1,"increments":1000000,"rss_bytes":1000000},{"seconds":2,"increments":3000000,"rss_bytes":0},{"seconds":3,"increments":5000000,"rss_bytes":3000000}]}`),
	}
	if err := Run(t.Context(), args, t.Output(), t.Output()); err != nil {
		t.Fatal(err)
	}
	for name, texts := range map[string][]string{
		"peers-hot":      {"increments/s", "countmill/name", "redis/one", ">1M<"},
		"cost-counters":  {"per million increments", "shards", "markers", "commits", ">1k<"},
		"cost-messages":  {"counters a message", "shards"},
		"billion-rate":   {"million increments/s", "seconds", "kill -9"},
		"billion-memory": {"MiB", "seconds"},
	} {
		text, err := os.ReadFile(filepath.Join(dir, name+".svg"))
		if err != nil {
			t.Error(err)
			continue
		}
		wellFormed(t, name, string(text))
		for _, want := range texts {
			if !strings.Contains(string(text), want) {
				t.Errorf("%s: no %q", name, want)
			}
		}
		if strings.Contains(string(text), "fill:#FFFFFF") {
			t.Errorf("%s: something white is in it", name)
		}
		if strings.Contains(string(text), "fill:#-") {
			t.Errorf("%s: an invalid colour", name)
		}
	}
}

func wellFormed(t *testing.T, name, text string) {
	t.Helper()
	for d := xml.NewDecoder(strings.NewReader(text)); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Errorf("%s: %v", name, err)
			return
		}
	}
}

func TestNothingToDraw(t *testing.T) {
	t.Parallel()
	if err := Run(t.Context(), nil, t.Output(), t.Output()); err == nil {
		t.Error("no file: got no error")
	}
	quick := filepath.Join(t.TempDir(), "quick.json")
	if err := os.WriteFile(quick, []byte(`{"quick":true,"results":[]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Run(t.Context(), []string{"-peers", quick}, t.Output(), t.Output()); err == nil || !strings.Contains(err.Error(), "quick") {
		t.Errorf("a quick run: got %v, want an error about the quick run", err)
	}
}
