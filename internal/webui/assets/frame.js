// One counter for another page: #counter=NAME&range=day&tz=Europe/Berlin&theme=dark

import * as api from "./api.js";
import * as format from "./format.js";
import { Detail } from "./detail.js";
import { Stream } from "./stream.js";
import { Totals } from "./totals.js";
import { isRange } from "./ranges.js";

const at = new URLSearchParams(location.hash.slice(1));
api.begin();
const totals = new Totals();
const detail = new Detail(totals);
const name = at.get("counter") || "";
const range = isRange(at.get("range") || "") ? at.get("range") : "live";
const zone = format.isZone(at.get("tz") || "") ? at.get("tz") : format.ownZone();

const stream = new Stream((event) => {
  totals.merge(event.totals);
  detail.reason = "";
  detail.update();
}, (err) => {
  detail.reason = format.sentence(err);
  detail.update();
});

if (name) {
  detail.show(name, range, zone);
  stream.set([name]);
  setInterval(() => {
    totals.tick(Date.now());
    detail.tick();
  }, 1000);
  document.addEventListener("visibilitychange", () => (document.hidden ? stream.stop() : stream.set([name])));
} else {
  detail.hint("Name a counter in the address: frame.html#counter=NAME");
}
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => detail.repaint());
