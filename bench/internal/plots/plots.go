// Package plots draws what the other commands measured, from the files that they write with
// -json, as SVG for docs/evidence/.
package plots

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/countmill/countmill/bench/internal/report"
)

// Run is the command.
func Run(_ context.Context, args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("bench plot", flag.ContinueOnError)
	flags.SetOutput(stderr)
	out := flags.String("out", "../docs/evidence", "where the plots go")
	files := make(map[string]*string)
	for _, name := range []string{"peers", "cost", "billion"} {
		files[name] = flags.String(name, "", "file with the results of "+name)
	}
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	drawn := 0
	for name, draw := range map[string]func(text []byte, dir string) error{"peers": peers, "cost": cost, "billion": billion} {
		if *files[name] == "" {
			continue
		}
		text, err := os.ReadFile(*files[name])
		if err == nil {
			err = ofUse(text)
		}
		if err == nil {
			err = draw(text, *out)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		drawn++
	}
	if drawn == 0 {
		return errors.New("nothing to draw: name a file with -peers, -cost or -billion")
	}
	_, err := fmt.Fprintln(stdout, "plots are in", *out)
	return err
}

// ofUse refuses the results of a quick run.
func ofUse(text []byte) error {
	var file struct{ Quick bool }
	err := json.Unmarshal(text, &file)
	if err == nil && file.Quick {
		err = errors.New("these are results of a quick run, whose figures are useless")
	}
	return err
}

// peers draws, for each load, every system's median rate with its least and most.
func peers(text []byte, dir string) error {
	var file struct {
		Results []struct {
			System, Load string
			Rate         float64 `json:"per_second"`
		}
	}
	if err := json.Unmarshal(text, &file); err != nil {
		return err
	}
	for _, load := range []string{"hot", "zipf", "uniform"} {
		var names []string
		rates := make(map[string][]float64)
		for _, r := range file.Results {
			if r.Load != load || r.Rate <= 0 {
				continue
			}
			if rates[r.System] == nil {
				names = append(names, r.System)
			}
			rates[r.System] = append(rates[r.System], r.Rate)
		}
		if len(names) == 0 {
			continue
		}
		slices.SortStableFunc(names, func(a, b string) int {
			return int(report.Median(rates[a]) - report.Median(rates[b]))
		})
		if err := dots(load, names, rates, dir); err != nil {
			return err
		}
	}
	return nil
}

// dots has a line of its own for each name.
func dots(load string, names []string, rates map[string][]float64, dir string) error {
	p := newPlot("Increments counted in a second, load "+load, "increments/s, logarithmic", "")
	var medians plotter.XYs
	var spreads plotter.XErrors
	for i, name := range names {
		median := math.Log10(report.Median(rates[name]))
		medians = append(medians, plotter.XY{X: median, Y: float64(i)})
		spreads = append(spreads, struct{ Low, High float64 }{median - math.Log10(slices.Min(rates[name])), math.Log10(slices.Max(rates[name])) - median})
	}
	marks, err := plotter.NewScatter(medians)
	if err != nil {
		return err
	}
	bars, err := plotter.NewXErrorBars(struct {
		plotter.XYs
		plotter.XErrors
	}{medians, spreads})
	if err != nil {
		return err
	}
	bars.Color = colour[0]
	marks.GlyphStyleFunc = func(i int) draw.GlyphStyle {
		c := colour[1]
		if ours(names[i]) {
			c = colour[0]
		}
		return draw.GlyphStyle{Color: c, Radius: vg.Points(4), Shape: draw.CircleGlyph{}}
	}
	p.Add(bars, marks)
	p.NominalY(names...)
	p.X.Tick.Marker = decades{}
	return save(p, vg.Length(len(names)+4)*0.6*vg.Centimeter, dir, "peers-"+load)
}

// ours reports whether a system counts with countmill.
func ours(name string) bool {
	return len(name) > 9 && name[:9] == "countmill" || name == "http/ndjson"
}

// cost draws how the cost grows with the number of counters, and falls as messages grow.
func cost(text []byte, dir string) error {
	var file struct {
		Rows []struct {
			Table                  string
			X, Increments, Commits float64
			Shards                 float64 `json:"shards_written"`
			Markers                float64 `json:"markers_written"`
		}
	}
	if err := json.Unmarshal(text, &file); err != nil {
		return err
	}
	for _, d := range []struct{ table, title, x, name string }{
		{"by number of counters: 100,000/s from 10 publishers, uniform", "Entities written, by number of counters", "counters that 100,000 increments/s go to (logarithmic)", "cost-counters"},
		{"by size of messages: Zipf, 100,000/s from 10 publishers", "Entities written, by size of messages", "distinct counters a message (logarithmic)", "cost-messages"},
	} {
		all := []series{{name: "shards"}, {name: "markers"}, {name: "commits"}}
		for _, r := range file.Rows {
			if r.Table != d.table {
				continue
			}
			for i, n := range []float64{r.Shards, r.Markers, r.Commits} {
				if n > 0 { // a logarithm has no 0
					all[i].xys = append(all[i].xys, plotter.XY{X: math.Log10(r.X), Y: math.Log10(n * 1e6 / r.Increments)})
				}
			}
		}
		if len(all[0].xys) == 0 {
			return fmt.Errorf("no rows of the table %q", d.table)
		}
		p := newPlot(d.title, d.x, "per million increments (logarithmic)")
		if err := lines(p, true, all...); err != nil {
			return err
		}
		p.X.Tick.Marker, p.Y.Tick.Marker = decades{}, decades{}
		p.Y.Min, p.Y.Max = 1, 6 // the classic counter writes a million
		p.Legend.Left, p.Legend.Top = true, d.name == "cost-counters"
		if err := save(p, height, dir, d.name); err != nil {
			return err
		}
	}
	return nil
}

// billion draws the rate over time, with the kills, and memory.
func billion(text []byte, dir string) error {
	var file struct {
		Kills   []float64
		Samples []struct {
			Seconds, Increments float64
			RSS                 float64 `json:"rss_bytes"`
		}
	}
	if err := json.Unmarshal(text, &file); err != nil {
		return err
	}
	if len(file.Samples) < 2 {
		return errors.New("fewer than two samples")
	}
	rate, memory := series{name: "increments acknowledged"}, series{name: "memory of up (RSS)"}
	for i, s := range file.Samples {
		if s.RSS > 0 {
			memory.xys = append(memory.xys, plotter.XY{X: s.Seconds, Y: s.RSS / (1 << 20)})
		}
		if i > 0 {
			last := file.Samples[i-1]
			rate.xys = append(rate.xys, plotter.XY{X: s.Seconds, Y: (s.Increments - last.Increments) / (s.Seconds - last.Seconds) / 1e6})
		}
	}
	for _, d := range []struct {
		series
		title, y, name string
	}{
		{rate, "Rate over time, killed at every dot", "million increments/s", "billion-rate"},
		{memory, "Memory over time, killed at every dot", "MiB", "billion-memory"},
	} {
		p := newPlot(d.title, "seconds", d.y)
		if err := lines(p, false, d.series); err != nil {
			return err
		}
		if err := dotKills(p, file.Kills); err != nil {
			return err
		}
		p.Y.Min = 0
		p.Y.Max *= 1.15 // room for the legend
		if err := save(p, height, dir, d.name); err != nil {
			return err
		}
	}
	return nil
}

func dotKills(p *plot.Plot, kills []float64) error {
	if len(kills) == 0 {
		return nil
	}
	at := make(plotter.XYs, len(kills))
	for i, second := range kills {
		at[i].X = second
	}
	marks, err := plotter.NewScatter(at)
	if err != nil {
		return err
	}
	marks.Color, marks.Shape, marks.Radius = colour[1], draw.CircleGlyph{}, vg.Points(2)
	p.Add(marks)
	p.Legend.Add("kill -9", marks)
	return nil
}
