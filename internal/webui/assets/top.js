// The best counters of an index. The panel asks only while it is open: a board costs a look at all
// counters of its index.

import * as api from "./api.js";
import * as format from "./format.js";

const most = 10;
const windows = ["", "today", "this-week", "1h"];

const $ = (id) => document.getElementById(id);

export class Top {
  // onChoice gets the changes of the address, onProblem an error that no repeat helps.
  constructor(onChoice, onProblem) {
    Object.assign(this, { onChoice, onProblem });
    this.names = []; // of the indexes
    this.index = this.question = "";
    this.rows = Array.from({ length: most }, row);
    $("top-part").addEventListener("toggle", () => this.toggled());
    for (const id of ["top-index", "top-of", "top-window"]) $(id).addEventListener("change", () => this.choose());
  }

  open() {
    return $("top-part").open;
  }

  // toggled also comes after route opened the panel, which chooses nothing new.
  toggled() {
    if (this.open() !== (this.index !== "")) this.choose();
    if (this.open()) this.refresh().catch(this.onProblem);
    else this.fill([]); // the arrow keys skip them
  }

  choose() {
    const index = this.open() ? $("top-index").value : "";
    this.onChoice({ top: index, of: index && $("top-of").value, window: index && $("top-window").value });
  }

  // route shows what the address names.
  route(index, of, window, zone) {
    const closed = index === "" && this.index !== "";
    this.index = index;
    if (index || closed) $("top-part").open = index !== "";
    this.list();
    $("top-of").value = of === "groups" ? of : "";
    $("top-window").value = windows.includes(window) ? window : "";
    this.zone = zone;
    const question = JSON.stringify(this.query());
    if (question === this.question) return;
    this.question = question;
    this.say("");
    this.fill([]);
    this.refresh().catch(this.onProblem);
  }

  query() {
    const q = { index: this.index, n: most };
    if ($("top-of").value) q.of = $("top-of").value;
    if ($("top-window").value) Object.assign(q, { window: $("top-window").value, tz: this.zone });
    return q;
  }

  // setIndexes takes the indexes that can be chosen.
  setIndexes(names) {
    const first = this.names.length === 0 && names.length > 0;
    this.heard = true;
    this.names = names;
    this.list();
    if (this.open() && first && !this.index) this.choose();
    else if (this.open() && names.length === 0) this.refresh().catch(this.onProblem);
  }

  list() {
    const names = this.index && !this.names.includes(this.index) ? [this.index, ...this.names] : this.names;
    const select = $("top-index");
    if ([...select.options].map((o) => o.value).join("\n") !== names.join("\n")) {
      select.replaceChildren(...(names.length ? names.map((n) => new Option(n, n)) : [new Option("Index", "")]));
    }
    if (this.index) select.value = this.index;
    $("top-choose").disabled = names.length === 0;
  }

  // refresh asks once. It throws what a token may help against.
  async refresh() {
    if (!this.open()) return;
    if (!this.index) {
      if (this.heard && this.names.length === 0) this.advise();
      return;
    }
    const question = this.question;
    if (!this.shown) this.say("Looking at all counters of " + this.index);
    try {
      const answer = await api.top(this.query());
      if (question === this.question && this.open()) this.take(answer);
    } catch (err) {
      if (err.status === 401) throw err;
      if (question !== this.question) return;
      this.fill([]);
      this.say(err.name === "TimeoutError" ? "The first look at all counters is not finished. The page asks again." : format.sentence(err));
    }
  }

  take(answer) {
    this.fill(answer.top);
    this.say(answer.top.length ? "" : "No counter of this index has a total" + ($("top-window").value ? " in this window." : "."));
    let text = "complete as of " + format.clock(new Date(answer.complete_as_of), this.zone);
    if (answer.overflowed) text += ", " + format.whole(answer.overflowed.length) + " without a place: their totals do not fit 64 bits";
    if (answer.partial) text += ", without increments whose series no rule kept";
    $("top-foot").textContent = text;
  }

  // advise is for a server without indexes.
  advise() {
    this.say("There is no index yet. An index puts counters into groups:");
    const code = document.createElement("pre");
    code.textContent = `countmill index create sites \\\n  --match 'page:{site}:*' \\\n  --group 'site:{site}' \\\n  --server ${new URL(".", document.baseURI).href.replace(/\/$/, "")}`;
    $("top-note").append(code);
  }

  say(text) {
    if ($("top-note").textContent !== text) $("top-note").textContent = text;
    $("top-note").hidden = text === "";
    if (text) $("top-foot").textContent = "";
  }

  // fill keeps the element of each place, so that the focus stays.
  fill(top) {
    this.shown = top.length > 0;
    this.rows.forEach((r, i) => {
      if (i >= top.length) return r.item.remove();
      const { counter, total, rank } = top[i], count = format.whole(BigInt(total));
      if (r.name.textContent !== counter) {
        r.name.textContent = r.link.title = counter;
        r.link.href = "#" + new URLSearchParams({ counter });
      }
      if (r.total.textContent !== count) r.total.textContent = count;
      r.rank.textContent = rank;
      if (!r.item.isConnected) $("top-rows").append(r.item);
    });
  }
}

// row makes the elements of a place. Names are set as text, whatever they contain.
function row() {
  const item = document.createElement("li"), link = document.createElement("a");
  const part = (className) => {
    const span = document.createElement("span");
    span.className = className;
    link.append(span);
    return span;
  };
  const rank = part("rank"), name = part("name"), total = part("count");
  item.append(link);
  return { item, link, rank, name, total };
}
