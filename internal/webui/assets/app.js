// The page: what the address says, and the calls it makes again and again.

import * as api from "./api.js";
import * as format from "./format.js";
import { Detail } from "./detail.js";
import { Groups } from "./groups.js";
import { Health } from "./health.js";
import { Journal } from "./journal.js";
import { List } from "./list.js";
import { Stream } from "./stream.js";
import { Top } from "./top.js";
import { Totals } from "./totals.js";
import { isRange, ranges } from "./ranges.js";

const $ = (id) => document.getElementById(id);

const indexesEvery = 2000, quietIndexesEvery = 20000; // soon while one is being built
const journalEvery = 5000;
const topEvery = 10000; // a board is looked at no more often
const overviewEvery = 2000, firstNamesEvery = 2000, namesEvery = 4000, quietNamesEvery = 30000;

// namesAgain is how long until the names are listed again: soon while there is room for new ones.
function namesAgain() {
  const n = list.all().length;
  if (n === 0) return firstNamesEvery;
  return n < 75 ? namesEvery : quietNamesEvery;
}

api.begin();
const totals = new Totals();
const health = new Health();
const detail = new Detail(totals);
const groups = new Groups();
const list = new List(totals, () => {
  detail.update();
  follow();
});
const top = new Top((changes) => go(changes, true), onProblem);
const journal = new Journal((place, replace) => go({ journal: place }, replace), onProblem);
const stream = new Stream(onEvent, onProblem);

// onEvent merges an event of the stream.
function onEvent(event) {
  const changed = totals.merge(event.totals);
  for (const name of changed) list.show(name);
  detail.update();
}

// onProblem asks for a token where the server wants one, or another one.
function onProblem(err) {
  if (err.status !== 401 && err.status !== 403) return;
  stream.stop();
  $("ask-wrong").textContent = api.hasToken() ? err.message : "";
  if (!$("ask").open) $("ask").showModal();
}

// follow watches the rows in view and the counter beside them.
let following = 0;
function follow() {
  clearTimeout(following);
  following = setTimeout(() => {
    if (document.hidden || $("ask").open) return;
    const shown = list.inView();
    detail.waits(groups.waiting(detail.name));
    // A group without a total would keep the others from the stream.
    stream.set((detail.name ? [detail.name, ...shown] : shown).filter((name) => !groups.waiting(name)));
    const busy = health.last?.busiest?.map((b) => b.counter) ?? [];
    totals.keep(new Set([...list.all(), ...busy, detail.name]));
  }, 150);
}

// Regular calls. Each waits for its answer before it waits for its time, and none is made while
// nobody sees the page.

function regularly(call, every) {
  let timer = 0;
  const run = async () => {
    clearTimeout(timer);
    if (!document.hidden && !$("ask").open) {
      try {
        await call();
      } catch (err) {
        onProblem(err);
      }
    }
    timer = setTimeout(run, every());
  };
  run();
  return run;
}

async function readOverview() {
  try {
    const o = await api.overview();
    health.take(o);
    // Beside its aggregator the store is at hand. Elsewhere each look may cost money.
    stream.interval = o.roles.includes("aggregator") ? "500ms" : "1s";
    const busy = o.busiest?.map((b) => b.counter) ?? [];
    for (const name of busy) totals.get(name);
    await know(busy.slice(0, 25));
    list.setBusy(busy);
  } catch (err) {
    if (!list.heard) list.setBusy([]);
    health.state(err.status !== 401 && err.status !== 403);
    throw err;
  }
}

// know reads the totals of busy names that no list or event has brought yet.
async function know(names) {
  const unknown = names.filter((n) => totals.get(n).total === null);
  if (unknown.length) totals.merge((await api.totals(unknown)).totals);
}

async function readIndexes() {
  if (await groups.refresh()) follow();
  top.setIndexes(groups.serving());
}

const readNames = () => list.refresh();
const again = [
  regularly(readOverview, () => overviewEvery),
  regularly(readNames, namesAgain),
  regularly(() => top.refresh(), () => topEvery),
  regularly(() => journal.refresh(), () => journalEvery),
  regularly(readIndexes, () => (groups.working() ? indexesEvery : quietIndexesEvery)),
];
setTimeout(() => list.heard || list.setBusy([]), 1500); // a slow answer must not keep the names back
const now = () => again.forEach((run) => run());

setInterval(() => {
  if (document.hidden) return;
  totals.tick(Date.now());
  list.tick();
  detail.tick();
}, 1000);

document.addEventListener("visibilitychange", () => {
  if (document.hidden) return stream.stop();
  now();
  follow();
});
addEventListener("scroll", follow, { passive: true });
addEventListener("resize", follow);
$("lists").addEventListener("scroll", follow, { passive: true });

// The address: #counter=NAME&range=day&tz=Europe/Berlin&q=page:&top=INDEX&of=groups&window=today&journal=newest

const address = () => new URLSearchParams(location.hash.slice(1));

function go(changes, replace = false) {
  const to = address();
  for (const [key, value] of Object.entries(changes)) {
    if (value) to.set(key, value);
    else to.delete(key);
  }
  const hash = "#" + to;
  if (replace) history.replaceState(null, "", hash);
  else location.hash = hash;
  if (replace) route();
}

function route() {
  const at = address(), name = at.get("counter") || "";
  const range = isRange(at.get("range") || "") ? at.get("range") : "live";
  const zone = format.isZone(at.get("tz") || "") ? at.get("tz") : format.ownZone();
  document.documentElement.classList.toggle("one", name !== "");
  $("counter").hidden = name === "";
  $("no-counter").hidden = name !== "";
  document.title = name ? name + " · countmill" : "countmill";
  if (document.activeElement !== $("zone")) $("zone").value = zone;
  detail.show(name, range, zone);
  top.route(at.get("top") || "", at.get("of") || "", at.get("window") || "", zone);
  journal.route(name, at.get("journal") || "", zone);
  list.choose(name);
  const prefix = at.get("q") || "";
  if (prefix !== list.prefix) {
    $("search").value = prefix;
    list.search(prefix).catch(onProblem);
  }
  follow();
}
addEventListener("hashchange", () => {
  if (api.other()) return location.reload();
  const name = address().get("counter");
  route();
  if (name && matchMedia("(max-width: 899px)").matches) scrollTo(0, 0);
});

// A row's address has only its counter: keep the rest.
document.addEventListener("click", (e) => {
  const link = e.target.closest(".rows a, #back, #home");
  if (!link || e.metaKey || e.ctrlKey || e.shiftKey || e.button !== 0) return;
  e.preventDefault();
  const journalOf = address().get("journal") ? "newest" : ""; // a key is of another counter's page
  go({ counter: new URLSearchParams(new URL(link.href).hash.slice(1)).get("counter"), q: link.id === "home" ? "" : list.prefix, journal: journalOf });
});

let typing = 0;
$("search").addEventListener("input", () => {
  clearTimeout(typing);
  typing = setTimeout(() => go({ q: $("search").value }, true), 150);
});

for (const b of document.querySelectorAll("#ranges button")) b.addEventListener("click", () => go({ range: b.dataset.range }, true));

for (const name of Intl.supportedValuesOf("timeZone")) $("zones").append(new Option(name, name));
$("zone").addEventListener("change", () => {
  const zone = $("zone").value.trim(), ok = format.isZone(zone);
  $("zone").setAttribute("aria-invalid", String(!ok));
  if (ok) go({ tz: zone }, true);
});

// The token.

$("leave").hidden = !api.hasToken();
$("leave").addEventListener("click", () => {
  api.forget();
  location.reload();
});
$("ask-form").addEventListener("submit", () => {
  api.setToken($("token").value);
  $("token").value = "";
  $("leave").hidden = false;
  setTimeout(() => {
    now();
    follow();
  });
});

// Another theme of the system.
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  health.repaint();
  detail.repaint();
});

route();
