// The indexes: which groups there are, and how far those are that are being built.

import * as api from "./api.js";

const $ = (id) => document.getElementById(id);

export class Groups {
  constructor() {
    this.indexes = [];
    this.items = new Map(); // by name
  }

  // refresh reads the indexes. It reports whether a state has changed.
  async refresh() {
    const before = this.states();
    this.indexes = (await api.indexes()).indexes;
    this.render();
    return before !== this.states();
  }

  states() {
    return this.indexes.map((x) => x.name + x.state).join();
  }

  // working is whether a state is about to change.
  working() {
    return this.indexes.some((x) => x.state !== "serving");
  }

  // serving are the names of the indexes whose groups have totals.
  serving() {
    return this.indexes.filter((x) => x.state === "serving").map((x) => x.name);
  }

  // waiting is why a group has no total now; empty for any other counter.
  waiting(name) {
    const x = this.indexes.find((x) => name.startsWith(prefixOf(x)) || name === "=overflow:" + x.name);
    return !x || x.state === "serving" ? "" : "no total: its index " + x.name + " is " + words(x);
  }

  render() {
    const list = $("indexes"), left = new Map(this.items);
    for (const x of this.indexes) {
      left.delete(x.name);
      let item = this.items.get(x.name);
      if (!item) this.items.set(x.name, (item = entry()));
      show(item, x);
      list.append(item.element);
    }
    for (const [name, item] of left) {
      item.element.remove();
      this.items.delete(name);
    }
    $("group-part").hidden = this.indexes.length === 0;
  }
}

// prefixOf is what the names of the index's groups begin with.
const prefixOf = (x) => "=" + x.group.split("{")[0];

function words(x) {
  if (x.state === "serving" || !x.ranges) return x.state;
  return `${x.state}, ${Math.floor((100 * x.ranges_done) / x.ranges)} %`;
}

// entry makes the elements of an index. The link lists its groups.
function entry() {
  const element = document.createElement("li"), link = document.createElement("a");
  const name = document.createElement("span"), state = document.createElement("span"), bar = document.createElement("progress");
  name.className = "name";
  state.className = "rate";
  link.append(name, bar, state);
  element.append(link);
  return { element, link, name, state, bar };
}

function show(item, x) {
  item.link.href = "#" + new URLSearchParams({ q: prefixOf(x) });
  item.link.title = `${x.match} in =${x.group}` + (x.checked_at ? `, checked ${new Date(x.checked_at).toLocaleString()}` : "");
  if (item.name.textContent !== x.name) item.name.textContent = x.name;
  if (item.state.textContent !== words(x)) item.state.textContent = words(x);
  item.bar.hidden = x.state === "serving";
  item.bar.max = Math.max(x.ranges, 1);
  item.bar.value = x.ranges_done;
  item.bar.setAttribute("aria-label", x.name);
}
