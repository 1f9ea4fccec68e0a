// One counter: its total, its curve, its shards and its age.

import * as api from "./api.js";
import * as format from "./format.js";
import { Curve } from "./chart.js";
import { ranges } from "./ranges.js";
import { remembered } from "./totals.js";

const $ = (id) => document.getElementById(id);

// smooth is how many seconds a point of the live curve is the mean of. Events come once or twice a
// second, and would make waves where there are none.
const smooth = 3;

const leastLive = 60; // seconds of the live curve that are always shown

export class Detail {
  constructor(totals) {
    this.totals = totals;
    this.name = "";
    this.range = "live";
    this.zone = format.ownZone();
    this.points = null; // of the curve: times, values, and which are partial
    this.coarse = false; // the rule keeps no minutes: ranges.otherwise
    this.reason = ""; // why there is no total, or no news of it
    this.asked = 0;
    this.read = 0; // when the series was read last
    this.curve = new Curve($("plot"), (at) => this.point(at));
  }

  show(name, range, zone) {
    const other = name !== this.name || range !== this.range || zone !== this.zone;
    Object.assign(this, { name, range, zone });
    $("name").textContent = name;
    $("name").title = name;
    for (const b of document.querySelectorAll("#ranges button")) b.setAttribute("aria-pressed", String(b.dataset.range === range));
    if (other) this.restart();
    this.update();
  }

  restart() {
    this.asked++;
    this.read = 0;
    this.coarse = false;
    this.points = null;
    this.hint("");
    this.curve.clear();
    $("readout").textContent = "";
    $("foot").textContent = "";
    if (this.name) this.tick();
  }

  counter() {
    return this.totals.of.get(this.name);
  }

  // update writes the total.
  update() {
    const c = this.counter();
    const text = c ? c.text() : format.unknown;
    const total = $("total");
    if (total.textContent !== text) {
      total.textContent = text;
      total.dataset.long = String(text.length > 14);
    }
    this.age();
  }

  // waits takes the reason why a group has no total; empty for none.
  waits(reason) {
    if (this.reason === reason) return;
    this.reason = reason;
    if (reason) this.restart();
    this.age();
  }

  age() {
    const c = this.counter();
    if (this.reason) return this.meta(this.reason);
    if (c?.overflow) return this.meta("no total: it does not fit 64 bits");
    if (c && !c.exists) return this.meta("No counter is named so. Its first increment makes it.");
    if (!c || c.total === null) return this.meta("");
    const fresh = !c.changed || Date.now() - c.changed < 2500;
    this.meta((fresh ? "as of " : "unchanged since ") + format.clock(c.asOf, this.zone), c.shards + (c.shards === 1 ? " shard" : " shards"));
  }

  meta(asOf, shards = "") {
    $("as-of").textContent = asOf;
    if ($("shards")) $("shards").textContent = shards; // a frame has none
  }

  // tick is called once a second.
  tick() {
    if (!this.name) return;
    this.age();
    if (this.range === "live") return this.live();
    if (Date.now() - this.read > ranges[this.range].refresh) this.readSeries();
  }

  live() {
    const c = this.counter(), now = Math.floor(Date.now() / 1000), n = c ? c.moved.length : 0;
    if (this.reason || c?.overflow) return this.words("", ""); // 0 per second would be a guess
    const times = [], values = [];
    for (let i = 1; i < n; i++) {
      const over = Math.min(smooth, i);
      times.push(now - (n - 1 - i));
      values.push((c.moved[i] - c.moved[i - over]) / over);
    }
    if (!times.length) times.push(now), values.push(0);
    // It begins with a minute, and grows: an empty chart says nothing.
    const long = Math.min(Math.max(n, leastLive), remembered - 1);
    this.plot({ times, values, partial: [] }, { from: now - long, to: now });
    if (n < 2) this.words("Watching since you opened this counter.", "");
  }

  async readSeries() {
    const asked = ++this.asked, r = ranges[this.range];
    this.read = Date.now();
    const to = new Date(), from = new Date(to - r.long);
    const read = () => api.series(this.name, this.steps().step, this.zone, from, to);
    try {
      const found = await read().catch((err) => {
        if (asked !== this.asked || this.coarse || !r.otherwise || err.field !== "step") throw err;
        this.coarse = true;
        return read();
      });
      if (asked === this.asked) this.takeSeries(found, r);
    } catch (err) {
      if (asked === this.asked) this.explain(err);
    }
  }

  // steps has the step and the unit of the curve.
  steps() {
    const r = ranges[this.range];
    return this.coarse ? r.otherwise : r;
  }

  takeSeries({ rows, without }, r) {
    const mine = rows.filter((row) => row.counter === this.name);
    const points = {
      times: mine.map((row) => Date.parse(row.time) / 1000),
      values: mine.map((row) => (row.error ? null : Number(row.value))),
      partial: mine.map((row) => row.partial === true),
    };
    this.hint("");
    if (!mine.length) return this.hint("There is no count in " + r.words + ".");
    this.plot(points, { bars: r.bars });
    const young = points.partial.slice(0, -1).some(Boolean);
    const overflowed = mine.filter((row) => row.error).length;
    const sum = mine.reduce((all, row) => all + BigInt(row.value ?? 0), 0n);
    const notes = [];
    if (young) notes.push("Some times are from before the series began, and are not complete.");
    if (overflowed) notes.push(format.whole(overflowed) + " of the times have no count: it does not fit 64 bits.");
    if (without !== 0n) notes.push(format.whole(without) + " without a curve: counted without a rule.");
    this.words((overflowed ? format.unknown : format.whole(sum)) + " since " + format.moment(new Date(mine[0].time), this.zone, r.grain), notes.join(" "));
  }

  plot(points, options) {
    this.points = points;
    this.curve.draw(points.times, points.values, { zone: this.zone, ...options });
    if (this.range === "live") {
      const last = points.values.at(-1);
      this.words(format.rate(last) + " per second now", "");
    }
  }

  words(readout, foot) {
    this.still = readout;
    if (!this.pointing) $("readout").textContent = readout;
    $("foot").textContent = foot;
    $("plot").setAttribute("aria-label", "Curve of " + ranges[this.range].words + ": " + readout);
  }

  // point shows the point under the pointer.
  point(at) {
    const p = this.points, r = ranges[this.range];
    this.pointing = at !== null && at !== undefined && p !== null && p.times[at] !== undefined;
    if (!this.pointing) return void ($("readout").textContent = this.still || "");
    const when = format.moment(new Date(p.times[at] * 1000), this.zone, r.grain);
    const v = p.values[at];
    const value = v === null ? format.unknown : this.range === "live" ? format.rate(v) : format.whole(v);
    $("readout").textContent = `${value} ${this.steps().unit} · ${when}${p.partial[at] ? " · not complete" : ""}`;
  }

  // explain says why there is no curve. A counter without a rule has none.
  explain(err) {
    this.curve.clear();
    this.points = null;
    $("readout").textContent = this.still = "";
    if (err.status === 404 || /rule/.test(err.message)) return this.hint("No rule keeps a series of this counter, so countmill has no curve of the past. Add one:", ruleFor(this.name));
    this.read += 5000 - ranges[this.range].refresh; // try again soon
    this.hint(err.status ? "The server gives no curve: " + err.message : format.sentence(err));
  }

  hint(text, code = "") {
    const box = $("hint");
    box.hidden = text === "";
    box.replaceChildren();
    if (!text) return;
    const p = document.createElement("p");
    p.textContent = text;
    box.append(p);
    if (!code) return;
    const pre = document.createElement("pre");
    pre.textContent = code;
    box.append(pre);
  }

  repaint() {
    this.curve.repaint();
  }
}

// ruleFor is the command that adds a rule for the counters with the same text up to the first colon.
export function ruleFor(name) {
  const end = name.indexOf(":");
  const match = end >= 0 ? name.slice(0, end + 1) + "*" : name;
  return `countmill rule add series '${match.replaceAll("'", "'\\''")}=1m:6h,15m:400d'`;
}
