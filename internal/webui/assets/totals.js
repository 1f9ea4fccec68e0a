// The totals that the page knows. Events are merged: an event may have all totals or only those that
// changed.

import * as format from "./format.js";

export const remembered = 301; // seconds of history, for the live curve
const rateOver = 10; // seconds

class Counter {
  constructor(name) {
    this.name = name;
    this.total = null; // BigInt
    this.exists = true; // false: nothing was counted, or it was deleted
    this.shards = 0;
    this.asOf = null;
    this.changed = 0; // when the total last changed, by this machine's clock
    this.base = 0n;
    this.moved = []; // total - base, once a second, the newest last
  }

  take(row) {
    this.overflow = row.error !== undefined; // the total does not fit 64 bits
    const total = this.overflow ? null : BigInt(row.total);
    const moved = total !== this.total;
    if (this.total === null) this.base = total ?? 0n;
    else if (moved) this.changed = Date.now();
    this.total = total;
    this.exists = row.exists !== false;
    this.shards = row.shards;
    this.asOf = new Date(row.as_of);
    return moved;
  }

  // text is the total as a person reads it. A 0 would look like a counter.
  text() {
    return this.total === null || !this.exists ? format.unknown : format.whole(this.total);
  }

  tick() {
    if (this.total === null) return;
    this.moved.push(Number(this.total - this.base));
    if (this.moved.length > remembered) this.moved.shift();
  }

  // rate is the change in a second, over the last seconds.
  rate() {
    const n = this.moved.length;
    if (n < 2) return 0;
    const over = Math.min(rateOver, n - 1);
    return (this.moved[n - 1] - this.moved[n - 1 - over]) / over;
  }
}

export class Totals {
  constructor() {
    this.of = new Map();
    this.ticked = 0;
  }

  get(name) {
    let c = this.of.get(name);
    if (!c) this.of.set(name, (c = new Counter(name)));
    return c;
  }

  // merge takes rows of a list or an event, and returns the names whose totals changed.
  merge(rows) {
    const changed = [];
    for (const row of rows) if (this.get(row.counter).take(row)) changed.push(row.counter);
    return changed;
  }

  // keep forgets all other names.
  keep(names) {
    for (const name of this.of.keys()) if (!names.has(name)) this.of.delete(name);
  }

  // tick is called once a second. After a gap, because the page was hidden or the machine asleep, the
  // history begins anew.
  tick(now) {
    const gap = now - this.ticked > 3000;
    this.ticked = now;
    for (const c of this.of.values()) {
      if (gap) c.moved = [];
      c.tick();
    }
  }
}
