package plots

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"gonum.org/v1/plot/plotter"
)

// scaling draws how the shards of one counter grow, by the number of aggregators that commit to it.
func scaling(text []byte, dir string) error {
	var file struct {
		Rows []struct {
			Table string
			Name  string
			Seed  int
			Grew  []struct {
				At     time.Duration
				Shards float64
			}
		}
	}
	if err := json.Unmarshal(text, &file); err != nil {
		return err
	}
	var all []series
	for _, r := range file.Rows {
		if !strings.HasPrefix(r.Table, "Shards of one counter") || r.Seed != 0 || r.Name == "1" {
			continue // there are three colours
		}
		s := series{name: fmt.Sprint("aggregators: ", r.Name), xys: plotter.XYs{{X: 0, Y: 0}}}
		for _, g := range r.Grew {
			last := s.xys[len(s.xys)-1]
			s.xys = append(s.xys, plotter.XY{X: g.At.Seconds(), Y: last.Y}, plotter.XY{X: g.At.Seconds(), Y: math.Log10(g.Shards)})
		}
		s.xys = append(s.xys, plotter.XY{X: 60, Y: s.xys[len(s.xys)-1].Y})
		all = append(all, s)
	}
	if len(all) == 0 {
		return errors.New("no rows of shards of one counter")
	}
	p := newPlot("Shards of a counter that gets 1,000,000 increments/s from its first moment on", "seconds", "shards (logarithmic)")
	if err := lines(p, false, all...); err != nil {
		return err
	}
	p.Y.Tick.Marker = decades{}
	p.Y.Min, p.Y.Max = 0, 3.4 // room for the legend
	p.Legend.Left = true
	return save(p, height, dir, "scaling-shards")
}
