// The journal of the counter that is open: its increments one by one, the newest first. The panel asks only
// while it is open. It goes to older and newer entries by their keys.

import * as api from "./api.js";
import * as format from "./format.js";

const most = 20; // entries of a page
const afterAll = "f".repeat(40); // the key after all others

const $ = (id) => document.getElementById(id);

export class Journal {
  // onChoice gets the new place for the address, and whether to replace the old one there; onProblem an error
  // that no repeat helps.
  constructor(onChoice, onProblem) {
    Object.assign(this, { onChoice, onProblem });
    this.name = this.place = this.question = "";
    this.older = this.newer = ""; // the places of the pages beside this one; empty for none
    $("journal-part").addEventListener("toggle", () => this.toggled());
    for (const id of ["older", "newer", "newest"]) $("journal-" + id).addEventListener("click", () => this.onChoice(id === "newest" ? id : this[id], false));
  }

  // open is whether there are entries to show.
  open() {
    return this.name !== "" && this.place !== "";
  }

  // toggled also comes after route opened the panel, which chooses nothing new.
  toggled() {
    const open = $("journal-part").open;
    if (open !== (this.place !== "")) this.onChoice(open ? "newest" : "", true);
  }

  // route shows the page of the address: "newest", "before KEY", "after KEY", or "" while the panel is closed. A group
  // has no journal of its own.
  route(name, place, zone) {
    const asked = !/^(newest|(before|after) [0-9a-f]{40})$/.test(place) ? "" : place;
    this.name = name.startsWith("=") ? "" : name;
    Object.assign(this, { place: asked, zone });
    $("journal-part").hidden = this.name === "";
    $("journal-part").open = asked !== "";
    const question = [this.name, asked, zone].join("\n");
    if (question === this.question) return;
    this.question = question;
    this.clear(this.open() ? "Reading the journal" : "");
    this.read().catch(this.onProblem);
  }

  // refresh reads the newest page again. Other pages do not change.
  async refresh() {
    if (this.place === "newest") await this.read();
  }

  // read asks once. It throws what a token may help against.
  async read() {
    if (!this.open()) return;
    const question = this.question, [side, key] = this.place === "newest" ? ["before", afterAll] : this.place.split(" ");
    try {
      const page = await api.journal({ counter: this.name, limit: most, [side]: key });
      if (question === this.question) this.take(page, side, key);
    } catch (err) {
      if (err.status === 401) throw err;
      if (question !== this.question) return;
      this.clear(err.status === 403 ? "This token may not read the journal: it needs the scope admin." : format.sentence(err));
    }
  }

  take(page, side, key) {
    const { entries } = page;
    if (side === "before") {
      this.older = page.previous ? "before " + page.previous : "";
      this.newer = this.place === "newest" ? "" : "after " + (page.next || beside(key, -1n));
    } else {
      this.older = "before " + (entries.length ? entries[0].key : beside(key, 1n));
      this.newer = page.next ? "after " + page.next : "";
    }
    const shown = [this.older, this.newer, ...entries.map((e) => e.key)].join();
    if (shown !== this.shown) { // else a selection in the text would be lost
      $("journal-rows").replaceChildren(...entries.reverse().map((e) => row(e, this.zone)));
      this.say("");
      if (!entries.length) this.explain();
    }
    this.shown = shown;
    this.buttons();
    $("journal-foot").textContent = "complete up to " + format.moment(new Date(page.settled_until), this.zone, "second");
  }

  // explain says why there are no entries.
  explain() {
    if (this.older || this.newer) return this.say("No entry among the records that one answer reads. Go on.");
    if (this.place !== "newest") return this.say("There are no entries here.");
    this.say("There are no entries. A journal needs a rule, and has later increments only:");
    const code = document.createElement("pre");
    code.textContent = `countmill rule add journal '${this.name.replaceAll("'", "'\\''")}=400d'`;
    $("journal-note").append(code);
  }

  clear(text) {
    this.older = this.newer = this.shown = "";
    $("journal-rows").replaceChildren();
    $("journal-foot").textContent = "";
    this.say(text);
    this.buttons();
  }

  buttons() {
    $("journal-older").disabled = !this.older;
    $("journal-newer").disabled = !this.newer;
    $("journal-newest").disabled = this.place === "newest";
  }

  say(text) {
    $("journal-note").textContent = text;
    $("journal-note").hidden = text === "";
  }
}

// beside is the key just before or after another one: a page beside one without entries must not skip the key itself.
const beside = (key, by) => (BigInt("0x" + key) + by).toString(16).padStart(key.length, "0");

// row makes the elements of an entry. Names are set as text, whatever they contain.
function row(entry, zone) {
  const item = document.createElement("li");
  const part = (className, text) => {
    const span = document.createElement("span");
    span.className = className;
    span.textContent = text;
    item.append(span);
    return span;
  };
  part("when", format.moment(new Date(entry.time), zone, "second")).title = entry.time;
  const delta = BigInt(entry.delta);
  part("delta", (delta > 0n ? "+" : delta < 0n ? "−" : "") + format.whole(delta < 0n ? -delta : delta));
  part("sender", entry.sender || "sender unknown").classList.toggle("quiet", !entry.sender);
  part("part", entry.part.slice(0, 12) + "…").title = "part " + entry.part + ", key " + entry.key;
  return item;
}
