// Curves, drawn by uPlot in the colours of the page.

import uPlot from "./uPlot.esm.js";
import * as format from "./format.js";

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

const faded = (u) => {
  const g = u.ctx.createLinearGradient(0, u.bbox.top, 0, u.bbox.top + u.bbox.height);
  g.addColorStop(0, colour("--fill-top"));
  g.addColorStop(1, colour("--fill-end"));
  return g;
};

// A Curve is a chart of one line or of bars. onPoint gets the index under the pointer, or null.
export class Curve {
  constructor(box, onPoint) {
    Object.assign(this, { box, onPoint });
    this.plot = null;
    this.kind = "";
    new ResizeObserver(() => this.resize()).observe(box);
  }

  // draw shows points: times in seconds and values.
  draw(times, values, { bars = false, zone = "UTC", from = null, to = null } = {}) {
    const kind = [bars, zone].join();
    const half = bars && times.length > 1 ? (times[1] - times[0]) / 2 : 0; // of a bar
    this.range = [from ?? times[0] - half, to ?? times.at(-1) + half];
    if (this.plot && this.kind === kind) return void this.plot.setData([times, values]);
    this.clear();
    this.kind = kind;
    this.plot = new uPlot(this.options(bars, zone), [times, values], this.box);
  }

  options(bars, zone) {
    const axis = {
      stroke: () => colour("--muted"), font: "12px " + colour("--sans"), ticks: { show: false },
      grid: { stroke: () => colour("--line"), width: 1 },
    };
    return {
      ...this.size(), padding: [8, 4, 0, 0], legend: { show: false },
      tzDate: (s) => uPlot.tzDate(new Date(s * 1e3), zone),
      cursor: { y: false, points: { size: 7, fill: () => colour("--accent"), stroke: () => colour("--surface"), width: 2 }, drag: { x: false, y: false } },
      hooks: { setCursor: [(u) => this.onPoint?.(u.cursor.idx)] },
      scales: { x: { range: () => this.range }, y: { range: (_u, least, most) => span(least, most) } },
      axes: [
        { ...axis, grid: { show: false }, size: 30, gap: 8, space: 72, values: labels(zone) },
        { ...axis, size: 56, gap: 8, space: 40, values: (_u, splits) => splits.map(splits.every(Number.isInteger) ? format.count : format.rate) },
      ],
      series: [{}, {
        stroke: () => colour("--accent"), width: bars ? 0 : 1.5, fill: bars ? () => colour("--bars") : faded,
        points: { show: false }, paths: bars ? uPlot.paths.bars({ size: [0.7, 48], radius: 0.15 }) : undefined,
      }],
    };
  }

  size() {
    return { width: Math.max(this.box.clientWidth, 100), height: Math.max(this.box.clientHeight, 60) };
  }

  resize() {
    if (this.plot && this.box.clientWidth > 0) this.plot.setSize(this.size());
  }

  // repaint follows a change of the theme.
  repaint() {
    this.plot?.redraw(false, true);
  }

  clear() {
    this.plot?.destroy();
    this.plot = null;
  }
}

// span begins at 0, and leaves room above.
function span(least, most) {
  if (least === null || (least === 0 && most === 0)) return [0, 1];
  return [Math.min(0, least * 1.08), Math.max(0, most * 1.08)];
}

// labels returns the labels of an axis of times: where a day begins its date, else the time of day.
// A label at the left edge would touch those of the other axis, and one at the right edge is cut.
const labels = (zone) => (u, splits) => splits.map((s, i) => {
  const x = u.valToPos(s, "x");
  const width = u.bbox.width / devicePixelRatio; // the element has none before the first drawing
  return x < 16 || x > width - 24 ? "" : label(uPlot.tzDate(new Date(s * 1e3), zone), splits, i);
});

const months = Array.from({ length: 12 }, (_, i) => new Intl.DateTimeFormat(undefined, { month: "short", timeZone: "UTC" }).format(Date.UTC(2000, i, 15)));
const two = (n) => String(n).padStart(2, "0");

function label(at, splits, i) {
  const between = splits.length > 1 ? splits[1] - splits[0] : 60;
  const date = at.getDate() + " " + months[at.getMonth()];
  if (between >= 25 * 86400) return at.getMonth() === 0 ? String(at.getFullYear()) : months[at.getMonth()];
  if (between >= 86400) return date;
  const time = two(at.getHours()) + ":" + two(at.getMinutes()) + (between < 60 ? ":" + two(at.getSeconds()) : "");
  return i > 0 && between >= 60 && at.getHours() === 0 && at.getMinutes() === 0 ? date : time;
}

// A Spark is a small line without axes.
export class Spark {
  constructor(box) {
    this.box = box;
    this.values = [];
    const line = { stroke: () => colour("--accent"), width: 1.5, fill: faded, points: { show: false }, paths: uPlot.paths.stepped({ align: 1 }) };
    this.plot = new uPlot({
      width: Math.max(box.clientWidth, 50), height: box.clientHeight, padding: [2, 0, 0, 0], legend: { show: false },
      cursor: { show: false }, axes: [{ show: false }, { show: false }], series: [{}, line],
      scales: { x: { time: false, range: () => [0, Math.max(this.values.length, leastSpark) - 1] }, y: { range: (_u, _l, most) => [0, Math.max(1, most * 1.05)] } },
    }, [[], []], box);
    new ResizeObserver(() => box.clientWidth > 0 && this.plot.setSize({ width: box.clientWidth, height: box.clientHeight })).observe(box);
  }

  add(value) {
    this.values.push(value);
    if (this.values.length > sparkPoints) this.values.shift();
    this.plot.setData([this.values.map((_, i) => i), this.values]);
  }

  repaint() {
    this.plot.redraw(false, true);
  }
}

const sparkPoints = 150; // five minutes, a point every two seconds
const leastSpark = 15;
