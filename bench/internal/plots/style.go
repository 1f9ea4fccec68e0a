package plots

import (
	"image/color"
	"math"
	"path/filepath"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/countmill/countmill/bench/internal/report"
)

// Pages are read on white and on black. So a plot has no background, and each of these colours has
// enough contrast with both. Colour-blind people can also distinguish the three colours.
var (
	grey   = color.RGBA{R: 0x7a, G: 0x7a, B: 0x7a, A: 0xff}
	faint  = color.NRGBA{R: 0x7a, G: 0x7a, B: 0x7a, A: 0x40}
	colour = []color.Color{color.RGBA{R: 0x1f, G: 0x85, B: 0xc9, A: 0xff}, color.RGBA{R: 0xd9, G: 0x5f, B: 0x0e, A: 0xff}, color.RGBA{R: 0x0f, G: 0x9d, B: 0x73, A: 0xff}}
)

const (
	width  = 18 * vg.Centimeter
	height = 10 * vg.Centimeter
)

// newPlot returns an empty plot in our style.
func newPlot(title, x, y string) *plot.Plot {
	plot.DefaultFont = font.Font{Typeface: "Liberation", Variant: "Sans"}
	p := plot.New()
	p.BackgroundColor = nil
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = title, x, y
	p.Title.Padding = vg.Points(8)
	styles := []*draw.TextStyle{&p.Title.TextStyle, &p.Legend.TextStyle}
	for _, axis := range []*plot.Axis{&p.X, &p.Y} {
		styles = append(styles, &axis.Label.TextStyle, &axis.Tick.Label)
		axis.Color, axis.Tick.Color = grey, grey
	}
	for _, s := range styles {
		s.Color, s.Font.Variant = grey, "Sans"
	}
	p.Legend.Top, p.Legend.Padding = true, vg.Points(3)
	grid := plotter.NewGrid()
	grid.Horizontal.Color, grid.Vertical.Color = faint, faint
	p.Add(grid)
	return p
}

// decades are the ticks of an axis of decimal logarithms, written as 1, 10, 100, 1k. (The library's own
// logarithmic axis leaves a quarter of the plot empty.)
type decades struct{}

// Ticks returns a tick for each digit of a decade, with a label at its beginning.
func (decades) Ticks(least, most float64) []plot.Tick {
	var ticks []plot.Tick
	for decade := math.Floor(least); decade <= most; decade++ {
		ticks = append(ticks, plot.Tick{Value: decade, Label: report.Short(math.Pow(10, decade))})
		for digit := 2.0; digit < 10; digit++ {
			ticks = append(ticks, plot.Tick{Value: decade + math.Log10(digit)})
		}
	}
	return slices.DeleteFunc(ticks, func(t plot.Tick) bool { return t.Value < least || t.Value > most })
}

// lines adds a line for each series, by name, with points at the measurements.
func lines(p *plot.Plot, points bool, series ...series) error {
	for i, s := range series {
		line, marks, err := plotter.NewLinePoints(s.xys)
		if err != nil {
			return err
		}
		line.Color, line.Width = colour[i%len(colour)], vg.Points(1.5)
		marks.Color, marks.Shape, marks.Radius = line.Color, draw.CircleGlyph{}, vg.Points(2.5)
		p.Add(line)
		if points {
			p.Add(marks)
		}
		p.Legend.Add(s.name, line)
	}
	return nil
}

type series struct {
	name string
	xys  plotter.XYs
}

func save(p *plot.Plot, h vg.Length, dir, name string) error {
	return p.Save(width, h, filepath.Join(dir, name+".svg"))
}
