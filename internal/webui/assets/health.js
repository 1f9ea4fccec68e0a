// The health of the pipeline, from GET /v1/overview.

import * as format from "./format.js";
import { Spark } from "./chart.js";

const $ = (id) => document.getElementById(id);

// Limits beyond which a figure asks for attention; docs/howto/monitor.md has the same.
const lagWarns = 30; // seconds

export class Health {
  constructor() {
    this.spark = new Spark($("spark"));
    this.last = null;
  }

  take(o) {
    this.last = o;
    const start = o.since_start;
    $("pulse").hidden = !start; // the token is limited to prefixes
    this.state();
    if (!start) return;
    set("rate", o.increments_per_second === null ? format.unknown : format.rate(o.increments_per_second));
    set("lag", o.lag === null ? "unknown" : format.seconds(o.lag), o.lag === null || o.lag > lagWarns);
    set("commits", o.commits_per_second === null ? format.unknown : format.rate(o.commits_per_second));
    set("per-write", perWrite(o.increments_per_write ?? start.increments_per_write));
    set("duplicates", format.whole(start.duplicates));
    set("dead", format.whole(start.dead_letters), start.dead_letters > 0);
    set("alive", format.whole(o.aggregators), o.aggregators === 0);
    this.spark.add(o.increments_per_second ?? 0);
  }

  // state is one word for everything. away is whether the server does not answer.
  state(away = false) {
    const o = this.last;
    let kind = "good", text = "all well";
    if (away) [kind, text] = ["bad", "no answer"];
    else if (!o) [kind, text] = ["wait", "connecting"];
    else if (o.status === "not ready") [kind, text] = ["bad", "not ready"];
    else if (o.aggregators === 0) [kind, text] = ["bad", "no aggregator is alive"];
    else if (o.status === "degraded") [kind, text] = ["warn", "degraded"];
    else if (o.lag !== null && o.lag > lagWarns) [kind, text] = ["warn", format.seconds(o.lag) + " behind"];
    $("dot").className = "dot " + kind;
    if ($("state-text").textContent !== text) $("state-text").textContent = text;
  }

  repaint() {
    this.spark.repaint();
  }
}

const perWrite = (n) => (n === null || n === undefined ? format.unknown : format.rate(n));

function set(id, text, wrong = false) {
  const e = $(id);
  if (e.textContent !== text) e.textContent = text;
  e.classList.toggle("wrong", wrong);
}
