// The list of counters: the busiest, and then names in order.

import * as api from "./api.js";
import * as format from "./format.js";

const page = 75; // names of a page; with the busiest they fit one stream
const mostBusy = 10;
const reorderEvery = 15000; // milliseconds
const mostRows = 1000;

const $ = (id) => document.getElementById(id);

export class List {
  constructor(totals, onRows) {
    Object.assign(this, { totals, onRows });
    this.prefix = "";
    this.busy = []; // names
    this.ordered = 0; // when they were put in order
    this.heard = false; // of the busiest, once
    this.names = [];
    this.listed = null; // the prefix that they begin with
    this.next = ""; // token of the next page
    this.chosen = "";
    this.asked = 0; // number of the last request: answers to earlier ones are dropped
    this.rows = { busy: new Map(), names: new Map() };
    $("more").addEventListener("click", () => this.more().catch(() => {})); // the next try is a click away
  }

  all() {
    return [...new Set([...this.busy, ...this.names])];
  }

  // search shows the names that begin with prefix.
  async search(prefix) {
    this.prefix = prefix;
    $("more").hidden = true; // it would add names of this prefix to those of the last
    await this.refresh();
  }

  // refresh reads as many names as are shown, at least a page.
  async refresh() {
    const asked = ++this.asked;
    const prefix = this.prefix, more = prefix === this.listed ? this.names.length : 0;
    try {
      const got = await api.counters(prefix, Math.min(Math.max(page, more), mostRows), "");
      if (asked !== this.asked) return;
      this.listed = prefix;
      this.take(got, []);
    } catch (err) {
      if (asked === this.asked && prefix !== this.listed) this.fail(err);
      throw err;
    }
  }

  async more() {
    const asked = ++this.asked;
    $("more").disabled = true;
    try {
      const got = await api.counters(this.prefix, Math.min(page, mostRows - this.names.length), this.next);
      if (asked === this.asked) this.take(got, this.names);
    } finally {
      $("more").disabled = false;
    }
  }

  take(got, before) {
    this.totals.merge(got.totals);
    this.names = [...before, ...got.totals.map((t) => t.counter)];
    this.next = got.next_page_token || "";
    this.render();
  }

  // fail says why there are no names. Those of the last search are no answer to this one.
  fail(err) {
    $("busy-part").hidden = $("name-part").hidden = true;
    this.say(format.sentence(err));
  }

  // setBusy takes the busiest names. Rows move seldom, and never under a pointer or the keyboard.
  setBusy(names) {
    const next = names.slice(0, mostBusy), first = !this.heard;
    this.heard = true;
    const held = $("lists").matches(":hover") || $("lists").contains(document.activeElement);
    const same = next.length === this.busy.length && next.every((n) => this.busy.includes(n));
    if (!first && (held || (same && Date.now() - this.ordered < reorderEvery))) return;
    this.busy = next;
    this.ordered = Date.now();
    this.render();
  }

  shownBusy() {
    return this.prefix ? [] : this.busy.filter((n) => this.totals.get(n).total !== null);
  }

  // render waits for both parts of the list, and for the names of the search: rows would move otherwise.
  render() {
    if (!this.heard || this.prefix !== this.listed) return;
    const busy = this.shownBusy();
    const inBusy = new Set(busy);
    const names = this.names.filter((n) => !inBusy.has(n));
    this.fill("busy", busy);
    this.fill("names", names);
    $("busy-part").hidden = busy.length === 0;
    $("name-part").hidden = names.length === 0;
    $("name-head").textContent = this.prefix ? "Beginning with " + this.prefix : busy.length ? "All others, by name" : "By name";
    const full = this.names.length >= mostRows;
    $("more").hidden = !this.next || full;
    if (busy.length + names.length) this.say(this.next && full ? "These are the first " + format.whole(mostRows) + ". Search for the others." : "");
    else this.say(this.prefix ? "No counter begins with this." : "");
    this.welcome(!this.prefix && busy.length + names.length === 0);
    this.onRows(this.all());
  }

  say(text) {
    $("list-note").textContent = text;
    $("list-note").hidden = text === "";
  }

  // welcome tells a new user how to count.
  welcome(show) {
    let box = $("welcome");
    if (!show) return box?.remove();
    if (box) return;
    box = document.createElement("div");
    box.id = "welcome";
    box.className = "welcome";
    const text = document.createElement("p");
    text.textContent = "Nothing is counted yet. Count something:";
    const code = document.createElement("pre");
    const to = new URL("v1/increments", document.baseURI);
    code.textContent = `curl -H 'Content-Type: application/json' \\\n  -d '{"counter":"page:/home"}' \\\n  ${to}`;
    box.append(text, code);
    $("lists").append(box);
  }

  fill(part, names) {
    const known = this.rows[part], list = $(part), next = new Map();
    for (const name of names) next.set(name, known.get(name) || row(name));
    for (const [name, r] of known) if (!next.has(name)) r.item.remove();
    let at = list.firstElementChild;
    for (const r of next.values()) {
      if (r.item === at) at = at.nextElementSibling;
      else list.insertBefore(r.item, at);
    }
    this.rows[part] = next;
    for (const name of names) this.show(name);
    this.choose(this.chosen);
  }

  // show writes the present total of a counter into its rows.
  show(name) {
    const c = this.totals.of.get(name);
    for (const rows of Object.values(this.rows)) {
      const r = rows.get(name);
      if (!r || !c || (c.total === null && !c.overflow)) continue;
      const text = c.text();
      if (r.total.textContent !== text) r.total.textContent = text;
    }
  }

  // tick writes the rates.
  tick() {
    for (const rows of Object.values(this.rows)) {
      for (const [name, r] of rows) {
        const text = format.change(this.totals.of.get(name)?.rate() ?? 0);
        if (r.rate.textContent !== text) r.rate.textContent = text;
      }
    }
  }

  // choose marks the counter that is shown beside the list.
  choose(name) {
    this.chosen = name;
    for (const rows of Object.values(this.rows)) {
      for (const [n, r] of rows) {
        if (n === name) r.link.setAttribute("aria-current", "true");
        else r.link.removeAttribute("aria-current");
      }
    }
  }

  // inView are the names that a person can see now, and some beside them.
  inView() {
    const from = -400, to = innerHeight + 400, names = [];
    for (const rows of Object.values(this.rows)) {
      for (const [name, r] of rows) {
        const { top } = r.item.getBoundingClientRect();
        if (top > from && top < to) names.push(name);
      }
    }
    return names;
  }
}

// row makes the elements of a counter. Names are set as text, whatever they contain.
function row(name) {
  const item = document.createElement("li");
  const link = document.createElement("a");
  link.href = "#" + new URLSearchParams({ counter: name });
  link.title = name;
  const part = (className, text) => {
    const span = document.createElement("span");
    span.className = className;
    span.textContent = text;
    link.append(span);
    return span;
  };
  part("name", name);
  const rate = part("rate", "");
  const total = part("count", format.unknown);
  item.append(link);
  return { item, link, rate, total };
}
