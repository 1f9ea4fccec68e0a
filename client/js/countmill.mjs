// @ts-check
/**
 * Counts with a running countmill over HTTP. Without dependencies, for Node 20 or later.
 *
 *     const c = new Client("http://127.0.0.1:8080");
 *     c.add("page:/home");                                // in memory, sent within 250 ms
 *     const done = await c.increment("orders", 1, { id: "order-7" });  // durable when it resolves
 *     console.log((await c.total("orders", { after: done })).total);   // contains the increment; a BigInt
 *     await c.close();
 *
 * The class of an error says whether the increments were counted, and whether a repeat is safe. The
 * client repeats a call itself, with the same key and body, while that is safe and there is time.
 * Times are in milliseconds.
 */

/**
 * @typedef {{counter: string, total: bigint, asOf: string, source: string, shards: number, exists: boolean, rate: number | null}} Total
 *   Every commit until asOf is in total. Of two totals the one with the greater asOf is newer. exists is
 *   false for a counter that nobody has incremented. rate is the change a second, of a watch with rates.
 * @typedef {{time: string, counter: string, value: bigint, partial: boolean}} Row
 *   The sum of a counter's increments in one step of time, which begins at time. partial: it is not over, or not wholly
 *   covered by the rule.
 * @typedef {{pattern: string, keep: string, begin: string, ended: string | null}} SeriesRule
 *   The counters of pattern, a name or a prefix followed by *, keep a series from begin on. ended is null for a rule in force.
 * @typedef {{version: number, series: SeriesRule[]}} Rules
 *   The rules in the order in which they are tried. version rises by 1 with each change of the settings.
 * @typedef {CallOptions & {step?: string, tz?: string, from?: Date, to?: Date}} SeriesOptions
 *   step is the length of a row (15m, 1d, 1w, 1mo and others; 15m), and tz the zone of days and longer steps. from is
 *   rounded down and to up to whole rows: the last 24 hours.
 * @typedef {{key: string, time: string, counter: string, delta: bigint, part: string, sender: string}} JournalEntry
 *   The delta of one counter in one part: an increment, or several of one sender that were sent together. Keys
 *   compare as strings in the order of entries. sender is the name of a token; empty if it is not known.
 * @typedef {{entries: JournalEntry[], next: string, previous: string, settledUntil: string}} JournalPage
 *   Some entries of one counter, in ascending order of keys. next is the after of the next page, empty at the end; a
 *   page may be short although there is a next one. previous is the before of the page before this one, if before was
 *   given; empty at the beginning. The journal is complete up to settledUntil; later entries are not shown yet.
 * @typedef {{sequence: string, last: number, exists: boolean}} SequenceState
 *   last is the last value, 0 if there was none. exists is false if nobody has used it since its delete, or ever.
 * @typedef {{name: string, match: string, group: string, state: string, ranges: number | null, rangesDone: number | null, checkedAt: string | null}} Index
 *   Puts the counters of match into groups, counters whose names begin with =. Groups have totals while state is
 *   serving, and not building or deleting. ranges are null if the token may not read all its counters. checkedAt: when it was last compared with the shards of its counters.
 * @typedef {{completeAsOf: string, partial: boolean}} Scan
 *   All counters were looked at as of completeAsOf; all totals and places are of it. partial: the window began before the
 *   rule for its series, or no rule keeps a series of the overflow group.
 * @typedef {Scan & {top: {counter: string, total: bigint, rank: number}[], overflowed: string[]}} Top
 *   The best counters, the best first, with their totals or the sums of the window, and their places. Equal totals share
 *   a place. overflowed have none, because their totals do not fit 64 bits.
 * @typedef {Scan & {counter: string, total: bigint, rank: number | null, of: number}} Rank
 *   rank is null if the counter does not exist, or has 0 in the window. of: how many were ordered.
 * @typedef {CallOptions & {window?: string, tz?: string}} BoardOptions
 *   window orders by the increments of today, this-week or this-month in the time zone tz, or of the last 1h. It needs
 *   a rule for series: NotFoundError says so.
 * @typedef {{totals: Total[], whole: boolean, removed: string[], truncated: boolean, lag: number | null, overflowed: string[]}} Update
 *   The totals of a watch that have changed. whole: these are all totals, and any others are gone. So is the first
 *   update, and the first one after a break. removed are counters that were deleted or are beyond the limit.
 *   truncated: more counters have the prefix. lag: the age of the oldest uncommitted increment, in seconds.
 *   overflowed: their totals do not fit 64 bits, and are missing.
 * @typedef {{receipt: string, countedAsOf: string}} Accepted
 *   Increments that are durable. Totals of the moment countedAsOf or a later one contain them. It is empty if not
 *   known; receipt is empty if the server counts before it answers.
 * @typedef {{signal?: AbortSignal, maxStaleness?: number, prefix?: string, limit?: number, rates?: boolean}} WatchOptions
 * @typedef {{position: number, id: string}} Conflict
 * @typedef {{counter: string, delta: number}} Increment
 * @typedef {object} Options
 * @property {string | (() => string | Promise<string>) | undefined} [token] a new token must have the old one's name
 * @property {number} [timeout] of one call, repeats included; 30,000
 * @property {number} [flushInterval] how long an added increment waits at most; 250
 * @property {number} [maxCounters] held in memory, with those on their way; 7,500, and not more
 * @property {number} [dedupWindow] the server's --dedup-window; no repeats near its end; 8 days
 * @property {(e: Error) => void} [onError] of the background; logs
 * @property {boolean} [insecure] lets a token go over plain HTTP to another machine
 * @typedef {{timeout?: number}} CallOptions
 * @typedef {{timeout?: number, maxStaleness?: number, minAsOf?: string, after?: Accepted | string, wait?: number}} ReadOptions
 *   maxStaleness accepts an older, cheaper total; 0 reads the store. minAsOf accepts none of a moment before: pass the
 *   asOf of an earlier total, and a counter never goes back. after, an Accepted or a receipt, accepts none without
 *   these increments; the server waits for them for up to wait: 2,000, and 5,000 at most.
 * @typedef {{path: string, body?: string, type?: string, key?: string, id?: string, method?: string, read?: boolean, exact?: boolean, maybe: number}} Request
 *   id: in the body, for repeats. method: default POST with a body, else GET. read: it changes nothing. exact: totals come as strings.
 *   maybe: when the first try was sent that was maybe counted, or 0
 * @typedef {Request & {increments: Increment[]}} Batch
 */

import { setTimeout as after } from "node:timers/promises";

const MAX_DELTA = Number.MAX_SAFE_INTEGER;
const MAX_COUNTERS = 7_500; // of one batch, which then has less than 8 MiB whatever the names are
const MAX_ANSWER = 16 << 20;
const SILENCE = 45_000; // the server sends a line of a watch every 15 s
const REFUSED = 30_000; // at most between two flushes of the background, while the token is refused or a proxy answers
const PROBLEM = "urn:countmill:problem:"; // begins the type of every error of a server; any other is a proxy's
const BEHIND = 5_000; // a caller of watch that is behind for longer gets a new connection

/** Base of all errors of this module. */
export class CountmillError extends Error {
  status = 0; // of HTTP; 0 if no answer came
  retryAfter = 0;
  /** The answer's members: type, detail, field, limit, index, line, ... @type {Record<string, any>} */
  problem = {};
  /** Of the call, for a repeat after OutcomeUnknownError: pass it to increment as key, to next as id. */
  key = "";
  /** Of add, which the client has given up; the class says if they counted. @type {Increment[]} */
  increments = [];
  again = false; // a repeat may help
  open = false; // the try was maybe counted
  /** @param {string} message @param {Partial<CountmillError>} [fields] */
  constructor(message, fields) {
    super(message);
    Object.assign(this, fields, { message });
    this.name = new.target.name;
  }
  /** The increments that were not counted. @returns {Conflict[]} */
  get conflicts() {
    return this.problem.conflicts ?? [];
  }
}
/** Nothing was counted. Correct the request first. */
export class InvalidError extends CountmillError {}
/** Nothing was counted. The key came with another body before. */
export class ConflictError extends CountmillError {}
/** All were counted but those in conflicts. Do not repeat any. */
export class IDsReusedError extends CountmillError {}
/** Nothing was counted. Repeat later. */
export class OverloadedError extends CountmillError {}
/** Nothing was counted, or nothing can be read. Repeat later. */
export class UnavailableError extends CountmillError {}
/** Maybe counted. Repeat only with the same id or key. */
export class OutcomeUnknownError extends CountmillError {}
/** A total does not fit 64 bits. */
export class TotalOverflowError extends CountmillError {}
/** Nothing was counted. The client is closed. */
export class ClosedError extends CountmillError {}
/** Nothing was done. The token is missing, or may not do this. */
export class DeniedError extends CountmillError {}
/** Nothing was done. There is no such thing, or the server's role does not serve it. */
export class NotFoundError extends CountmillError {}
/** Increments of the receipt were not counted within wait. Ask again later. */
export class NotCountedYetError extends CountmillError {}
/** The receipt is beyond the deduplication window, or of another database. */
export class ReceiptGoneError extends CountmillError {}
/** Nothing was given. The time of the request is before the deduplication window. */
export class IDExpiredError extends CountmillError {}
/** Increments of the receipt are in dead letters: problem has dead_letters and totals. */
export class DeadLetteredError extends CountmillError {}

/** By the problem's type, else by the status. @type {Record<string | number, typeof CountmillError>} */
const ERRORS = {
  "id-reused": ConflictError, "other-count": ConflictError, "id-expired": IDExpiredError, "ids-reused": IDsReusedError, overflow: TotalOverflowError, "outcome-unknown": OutcomeUnknownError,
  "not-counted-yet": NotCountedYetError, "not-serving": UnavailableError, 401: DeniedError, 403: DeniedError, 404: NotFoundError, 408: UnavailableError,
  410: ReceiptGoneError, 429: OverloadedError, 501: UnavailableError, 503: UnavailableError, 507: UnavailableError,
};
const REPEATED = [408, 429, 500, 502, 503, 504, 507];

/** Talks to one countmill, or to several behind one address. */
export class Client {
  #base;
  #options;
  /** @type {Map<string, number>} */
  #sums = new Map();
  /** Drawn once, kept until its outcome is certain. @type {Batch | undefined} */
  #batch;
  /** Of increments given up, which nobody was told yet. @type {CountmillError | undefined} */
  #refused;
  /** @type {Promise<unknown> | undefined} */
  #sending;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #timer;
  /** @type {number} before the next flush of the background */
  #wait;
  #closing = new AbortController();

  /** @param {string} base http://HOST:PORT or https://HOST:PORT, or a path below @param {Options} [options] */
  constructor(base, options = {}) {
    const u = URL.canParse(base) ? new URL(base) : undefined;
    if (!u || !/^https?:$/.test(u.protocol) || u.search || u.hash || u.username || u.password) {
      throw new InvalidError(`the address must be http://HOST:PORT or https://HOST:PORT, got ${JSON.stringify(base)}`);
    }
    const o = {
      timeout: 30_000, flushInterval: 250, maxCounters: MAX_COUNTERS, dedupWindow: 8 * 86_400_000, onError: logError,
      token: "", insecure: false, ...options,
    };
    if (!(Math.min(o.timeout, o.flushInterval, o.maxCounters, o.dedupWindow) > 0 && o.maxCounters <= MAX_COUNTERS)) {
      throw new InvalidError(`times must be above 0, and maxCounters from 1 to ${MAX_COUNTERS}`);
    }
    if (o.token && !o.insecure && u.protocol === "http:" && !/^(localhost|127\.\d+\.\d+\.\d+|\[::1\])$/.test(u.hostname)) {
      throw new InvalidError(`a token is not sent to ${u.host} over plain http: use https, or insecure`);
    }
    if (typeof o.token !== "function") o.token = bearer(o.token ?? "");
    this.#base = u.href.replace(/\/+$/, "");
    this.#options = o;
    this.#wait = o.flushInterval;
  }

  /**
   * Adds in memory and returns at once. Increments of one counter become one. The process does not
   * exit by itself before they are sent. If it is killed before, they are lost. OverloadedError and ClosedError mean certainly not counted.
   * @param {string} counter @param {number | bigint} [delta]
   */
  add(counter, delta = 1) {
    line(counter, delta);
    if (this.#closing.signal.aborted) throw new ClosedError("the client is closed");
    const before = this.#sums.get(counter);
    const sum = BigInt(before ?? 0) + BigInt(delta);
    if (sum > MAX_DELTA || sum < -MAX_DELTA) {
      throw new OverloadedError(`the unsent increments of ${JSON.stringify(counter)} exceed 2^53-1; flush, and add again`);
    }
    const { maxCounters } = this.#options;
    if (before === undefined && this.#sums.size + (this.#batch?.increments.length ?? 0) >= maxCounters) {
      throw new OverloadedError(`${maxCounters} counters are unsent, the limit`);
    }
    this.#sums.set(counter, Number(sum));
    this.#arm();
  }

  /**
   * Counts one increment, which is durable when this resolves. After OutcomeUnknownError call it again with
   * the same id, or with the key of the error: any other call may count twice.
   * @param {string} counter @param {number | bigint} [delta] @param {CallOptions & {id?: string, key?: string, time?: Date}} [options]
   * @returns {Promise<Accepted>}
   */
  async increment(counter, delta = 1, { id, key, time, timeout } = {}) {
    if (this.#closing.signal.aborted) throw new ClosedError("the client is closed");
    const body = line(counter, delta, { id, time: time?.toISOString() });
    if (key !== undefined && !/^[\x20-\x7e]{1,128}$/.test(key)) throw new InvalidError("key has other characters than ASCII, or another length (limit: 1 to 128 bytes)");
    if (id === undefined) key ??= newKey();
    return this.#call({ path: "/v1/increments", body, key, maybe: 0 }, this.#deadline(timeout), (a) => accepted(a, 1));
  }

  /**
   * The next values of a sequence: count of them, from first to last. No value is given twice. With an id a
   * repeat gets the same values; with the time of the first call too, a repeat after the deduplication window
   * throws IDExpiredError. Without an id each call gets new values; the key of an OutcomeUnknownError is then the
   * id for a repeat.
   * @param {string} sequence @param {CallOptions & {id?: string, count?: number, time?: Date}} [options]
   * @returns {Promise<{first: number, last: number}>}
   */
  async next(sequence, { id = newKey(), count = 1, time, timeout } = {}) {
    if (this.#closing.signal.aborted) throw new ClosedError("the client is closed");
    const body = JSON.stringify({ sequence, id, count, time: time?.toISOString() });
    return this.#call({ path: "/v1/sequences/next", body, id, maybe: 0 }, this.#deadline(timeout), (a) => values(a, count));
  }

  /** The last value of a sequence. @param {string} sequence @param {CallOptions} [options] @returns {Promise<SequenceState>} */
  async sequence(sequence, { timeout } = {}) {
    return this.#call({ path: "/v1/sequences?" + query({ sequence }), read: true, maybe: 0 }, this.#deadline(timeout), state);
  }

  /**
   * Marks a sequence as deleted, and resolves to its state before. Its last value stays: none is given again. It is
   * repeated after an unknown outcome; the state is then that after the delete.
   * @param {string} sequence @param {CallOptions} [options] @returns {Promise<SequenceState>}
   */
  async deleteSequence(sequence, { timeout } = {}) {
    return this.#call({ path: "/v1/sequences?" + query({ sequence }), method: "DELETE", maybe: 0 }, this.#deadline(timeout), state);
  }

  /** The indexes, in the order of their names, with their progress. @param {CallOptions} [options] @returns {Promise<Index[]>} */
  async indexes({ timeout } = {}) {
    return this.#call({ path: "/v1/indexes", read: true, maybe: 0 }, this.#deadline(timeout), indexes);
  }

  /**
   * Creates an index, and resolves to all. It may be repeated. The token needs the scope admin.
   * @param {string} name @param {string} match @param {string} group @param {CallOptions} [options] @returns {Promise<Index[]>}
   */
  async createIndex(name, match, group, { timeout } = {}) {
    return this.#call({ path: "/v1/indexes", body: JSON.stringify({ name, match, group }), maybe: 0 }, this.#deadline(timeout), indexes);
  }

  /**
   * Begins to delete an index and its groups, and resolves to all. It may be repeated until the index is gone.
   * @param {string} name @param {CallOptions} [options] @returns {Promise<Index[]>}
   */
  async deleteIndex(name, { timeout } = {}) {
    return this.#call({ path: "/v1/indexes?" + query({ name }), method: "DELETE", maybe: 0 }, this.#deadline(timeout), indexes);
  }

  /**
   * The n best counters of an index, 1 to 1,000, or with of "groups" its best groups.
   * @param {string} index @param {BoardOptions & {n?: number, of?: "counters" | "groups"}} [options] @returns {Promise<Top>}
   */
  async top(index, { n = 10, of, window, tz, timeout } = {}) {
    const path = "/v1/top?" + query({ index, n: String(n), of, window, tz });
    return this.#call({ path, read: true, exact: true, maybe: 0 }, this.#deadline(timeout), (a) => (
      { top: a.top.map((/** @type {any} */ t) => ({ counter: t.counter, total: BigInt(t.total), rank: t.rank })), overflowed: a.overflowed ?? [], ...scan(a) }));
  }

  /** The place of a counter among those of an index. @param {string} index @param {string} counter @param {BoardOptions} [options] @returns {Promise<Rank>} */
  async rank(index, counter, { window, tz, timeout } = {}) {
    const path = "/v1/rank?" + query({ index, counter, window, tz });
    return this.#call({ path, read: true, exact: true, maybe: 0 }, this.#deadline(timeout), (a) => (
      { counter: a.counter, total: BigInt(a.total), rank: a.rank, of: a.of, ...scan(a) }));
  }

  /**
   * Sends all that was added before. It is durable when this resolves. After an error without increments the
   * client keeps them, and goes on with the same key. After an error with increments it has given these up;
   * the error's class says whether they were counted. Those that the token may not count are given up alone,
   * and the error comes after the others are durable.
   * @param {CallOptions} [options]
   */
  async flush({ timeout } = {}) {
    await this.#flush(this.#deadline(timeout));
  }

  /**
   * Refuses further increments, sends the rest and ends watches. Its error has all that was not sent. It may
   * be repeated, to try again.
   * @param {CallOptions} [options]
   */
  async close({ timeout } = {}) {
    this.#closing.abort();
    clearTimeout(this.#timer);
    try {
      await this.#flush(this.#deadline(timeout));
    } catch (e) {
      if (e instanceof CountmillError) e.increments = [...e.increments, ...(this.#refused?.increments ?? []), ...(this.#batch?.increments ?? []), ...entries(this.#sums)];
      throw e;
    }
  }

  /** One total. @param {string} counter @param {ReadOptions} [options] @returns {Promise<Total>} */
  async total(counter, options) {
    return (await this.totals([counter], options))[0];
  }

  /**
   * Up to 1,000 totals, in the order asked. Those with source "store" are of one moment. If some do not fit 64 bits, the
   * problem of TotalOverflowError has these counters as overflowed, and the other totals.
   * @param {string[]} counters @param {ReadOptions} [options] @returns {Promise<Total[]>}
   */
  async totals(counters, { timeout, maxStaleness, minAsOf = "", after, wait = 2000 } = {}) {
    if (typeof after === "object") {
      if (after.countedAsOf > minAsOf) minAsOf = after.countedAsOf;
      after = after.receipt;
    }
    const path = "/v1/totals?" + query({ max_staleness: maxStaleness, min_as_of: minAsOf, after, wait: after ? wait : undefined });
    const body = JSON.stringify({ counters });
    const got = await this.#call({ path, body, read: true, exact: true, maybe: 0 }, this.#deadline(timeout), (a) => ({ ...a, ...totalsOf(a) }));
    if (got.totals.length + got.overflowed.length !== counters.length) throw new UnavailableError("the answer has another number of totals than was asked for");
    if (got.overflowed.length) throw new TotalOverflowError("totals that do not fit 64 bits: " + JSON.stringify(got.overflowed), { problem: got });
    if (got.dead_letters?.length) throw new DeadLetteredError("increments of the receipt are in dead letters: " + JSON.stringify(got.dead_letters), { problem: got });
    return got.totals;
  }

  /**
   * All counters whose names begin with prefix, in byte order, page by page. timeout is that of a page. If
   * counters have no total because it does not fit 64 bits, TotalOverflowError names them at the end.
   * @param {string} [prefix] @param {CallOptions} [options] @returns {AsyncGenerator<Total, void, void>}
   */
  async *list(prefix = "", { timeout } = {}) {
    /** @type {string[]} */
    const overflowed = [];
    let token = "";
    do {
      const path = "/v1/counters?" + query({ prefix, limit: "1000", page_token: token });
      const page = await this.#call({ path, read: true, exact: true, maybe: 0 }, this.#deadline(timeout), (a) => ({ ...a, totals: a.totals.map(total) }));
      yield* page.totals;
      overflowed.push(...(page.overflowed ?? []));
      token = page.next_page_token ?? "";
    } while (token);
    if (overflowed.length) throw new TotalOverflowError("totals that do not fit 64 bits: " + JSON.stringify(overflowed));
  }

  /**
   * Rows by counter, in the order asked, and by time: at most 10,000. All are as of one moment. Each counter needs a
   * rule (addSeries): NotFoundError names one without.
   * @param {string[]} counters @param {SeriesOptions} [options] @returns {Promise<Row[]>}
   */
  async series(counters, { step, tz, from, to, timeout } = {}) {
    const names = new URLSearchParams(counters.map((c) => ["counter", c]));
    const rest = query({ step, tz, from: from?.toISOString(), to: to?.toISOString() });
    return this.#call({ path: `/v1/series?${names}&${rest}`, read: true, exact: true, maybe: 0 }, this.#deadline(timeout), (a) => a.map(row));
  }

  /** The rules for series. @param {CallOptions} [options] @returns {Promise<Rules>} */
  async rules({ timeout } = {}) {
    return this.#call({ path: "/v1/rules", read: true, maybe: 0 }, this.#deadline(timeout), rules);
  }

  /**
   * Makes the counters of a pattern keep a series, and resolves to all rules. keep is how long: 1m:6h,15m:400d keeps
   * minutes for 6 hours and quarter hours for 400 days. Increments from then on are in it: add the rule before the first
   * one. It may be repeated. The token needs the scope admin.
   * @param {string} pattern @param {string} keep @param {CallOptions} [options] @returns {Promise<Rules>}
   */
  async addSeries(pattern, keep, { timeout } = {}) {
    return this.#call({ path: "/v1/rules/series", body: JSON.stringify({ pattern, keep }), maybe: 0 }, this.#deadline(timeout), rules);
  }

  /**
   * Ends the rule with the pattern. Its series stay for as long as it promised. It may be repeated.
   * @param {string} pattern @param {CallOptions} [options] @returns {Promise<Rules>}
   */
  async removeSeries(pattern, { timeout } = {}) {
    return this.#call({ path: "/v1/rules/series?" + query({ pattern }), method: "DELETE", maybe: 0 }, this.#deadline(timeout), rules);
  }

  /**
   * The increments of a counter under a rule for the journal, from the oldest on, page by page. after begins
   * after the key of an entry: pass the last key that you have seen to follow the end. id selects the increment
   * with that id. timeout is that of a page. The token needs the scope admin.
   * @param {string} counter @param {CallOptions & {id?: string, after?: string}} [options]
   * @returns {AsyncGenerator<JournalEntry, void, void>}
   */
  async *journal(counter, { id, after, timeout } = {}) {
    do {
      const page = await this.journalPage(counter, { id, after, limit: 1000, timeout });
      yield* page.entries;
      after = page.next;
    } while (after);
  }

  /**
   * Up to limit entries, at most 1,000: the oldest, those just after a key, or those just before a key. before
   * "f".repeat(40) gives the newest. Pages of what existed at the first call never repeat and never skip an entry.
   * @param {string} counter @param {CallOptions & {id?: string, after?: string, before?: string, limit?: number}} [options]
   * @returns {Promise<JournalPage>}
   */
  async journalPage(counter, { id, after, before, limit = 50, timeout } = {}) {
    const path = "/v1/journal?" + query({ counter, id, after, before, limit: String(limit) });
    return this.#call({ path, read: true, exact: true, maybe: 0 }, this.#deadline(timeout), (a) => (
      { entries: a.entries.map(entry), next: a.next ?? "", previous: a.previous ?? "", settledUntil: a.settled_until }));
  }

  /**
   * The totals of up to 100 counters, and then those that change, until signal aborts or the client closes.
   * With prefix, and counters [], the counters whose names begin with it: the first 100, or limit (up to
   * 1,000) of them. Broken connections are made again, and go to onError. A caller that is 5 s behind gets a
   * new connection, and so the newest totals. An error that a repeat cannot help is thrown.
   * @param {string[]} counters @param {WatchOptions} [options]
   * @returns {AsyncGenerator<Update, void, void>}
   */
  async *watch(counters, { signal, maxStaleness, prefix, limit, rates } = {}) {
    if (this.#closing.signal.aborted) throw new ClosedError("the client is closed");
    const stop = AbortSignal.any([this.#closing.signal, ...(signal ? [signal] : [])]);
    const names = new URLSearchParams(counters.map((c) => ["counter", c]));
    if (prefix !== undefined) names.append("prefix", prefix); // it may be empty: all counters
    const rest = { limit: limit === undefined ? limit : String(limit), rates: rates ? "true" : undefined, max_staleness: maxStaleness };
    for (let tries = 0; !stop.aborted; tries++) {
      try {
        for await (const update of this.#updates(`/v1/watch?${names}&${query(rest)}`, stop)) {
          tries = -1;
          yield update;
        }
      } catch (e) {
        if (stop.aborted) return;
        if (!(e instanceof CountmillError) || !e.again) throw e;
        this.#report(e);
        await sleep(pause(Math.max(tries, 0), e), stop);
      }
    }
  }

  /**
   * The updates of one connection, until it breaks or the caller is behind.
   * @param {string} path @param {AbortSignal} stop @returns {AsyncGenerator<Update, void, void>}
   */
  async *#updates(path, stop) {
    const end = new AbortController();
    /** @template T @param {Promise<T> | undefined} answer @returns {Promise<T | undefined>} */
    const soon = (answer) => {
      const timer = setTimeout(() => end.abort(new Error("the stream is silent")), SILENCE);
      return Promise.resolve(answer).finally(() => clearTimeout(timer));
    };
    try {
      const res = await soon(this.#send({ path, read: true, exact: true, maybe: 0 }, AbortSignal.any([stop, end.signal])));
      const reader = res?.body?.getReader();
      const decoder = new TextDecoder();
      let text = "", name = "", data = "", whole = true, waited = performance.now();
      for (;;) {
        const began = performance.now();
        const chunk = await soon(reader?.read());
        if (!chunk || chunk.done) throw new Error("the server ended the stream");
        if (performance.now() - began > 10) waited = performance.now(); // nothing was there to read
        const lines = (text + decoder.decode(chunk.value, { stream: true })).split("\n");
        text = lines.pop() ?? "";
        if (text.length + data.length > MAX_ANSWER) throw new Error(`an event of more than ${MAX_ANSWER} characters`);
        for (const l of lines) {
          const value = l.slice(l.indexOf(":") + 1).trim();
          if (l.startsWith("event:")) name = value;
          else if (l.startsWith("data:")) data += value;
          else if (!l.trim() && data) {
            if (performance.now() - waited > BEHIND) return;
            const got = JSON.parse(data);
            if (name === "problem") this.#report(problem(got.status, data, null));
            else {
              yield { ...totalsOf(got), whole, removed: got.removed ?? [], truncated: got.truncated ?? false, lag: got.lag ?? null };
              whole = false;
            }
            name = data = "";
          }
        }
      }
    } catch (e) {
      throw broken(this.#base, e);
    } finally {
      end.abort();
    }
  }

  /** @param {number | undefined} timeout */
  #deadline(timeout) {
    return performance.now() + (timeout ?? this.#options.timeout);
  }

  #arm() {
    if (this.#timer || this.#closing.signal.aborted) return;
    this.#timer = setTimeout(async () => {
      const { flushInterval } = this.#options;
      try {
        await this.#flush(this.#deadline(undefined), this.#closing.signal);
        this.#wait = flushInterval;
      } catch (e) {
        const refused = e instanceof CountmillError && (e.status === 401 || (e.open && !e.again));
        this.#wait = refused ? Math.max(flushInterval, Math.min(2 * this.#wait, REFUSED)) : flushInterval;
        this.#report(e);
      }
      this.#timer = undefined;
      if (this.#batch || this.#sums.size) this.#arm();
    }, this.#wait);
  }

  /** @param {unknown} e */
  #report(e) {
    try {
      this.#options.onError(/** @type {Error} */ (e));
    } catch (thrown) {
      console.error("onError threw", thrown);
    }
  }

  /** @param {number} deadline @param {AbortSignal} [cancel] */
  async #flush(deadline, cancel) {
    while (this.#sending) {
      const left = deadline - performance.now();
      if (left <= 0) throw new OutcomeUnknownError("another flush has not ended in time; the client keeps the increments");
      await Promise.race([this.#sending.catch(() => {}), sleep(left, undefined, false)]);
    }
    this.#sending = (async () => {
      if (this.#batch) await this.#sendBatch(deadline, cancel); // an earlier one
      await this.#sendBatch(deadline, cancel);
      const refused = this.#refused;
      this.#refused = undefined;
      if (refused) throw refused;
    })().finally(() => { this.#sending = undefined; });
    await this.#sending;
  }

  /** @param {number} deadline @param {AbortSignal} [cancel] */
  async #sendBatch(deadline, cancel) {
    if (!this.#batch) {
      this.#batch = batch(entries(this.#sums));
      this.#sums.clear();
    }
    while (this.#batch && !cancel?.aborted) {
      const { increments } = this.#batch;
      /** @type {Batch | undefined} */
      let rest;
      try {
        await this.#call(this.#batch, deadline, (a) => accepted(a, increments.length), cancel);
      } catch (e) {
        if (!(e instanceof CountmillError) || e.again || e.open || e.status === 401) throw e; // a token that expired is soon another
        // Those that the token may not count do not take the others along.
        const lines = new Set(e instanceof DeniedError && Array.isArray(e.problem.lines) ? e.problem.lines : []);
        const gone = increments.filter((_, i) => lines.has(i + 1));
        if (!gone.length) {
          e.increments = e instanceof IDsReusedError ? [] : increments;
          this.#batch = undefined;
          throw e;
        }
        e.increments = [...(this.#refused?.increments ?? []), ...gone];
        this.#refused = e;
        rest = batch(increments.filter((_, i) => !lines.has(i + 1)));
      }
      this.#batch = rest;
    }
  }

  /**
   * Sends r until it is answered. Every request of this client may be repeated.
   * @param {Request} r @param {number} deadline @param {(answer: any) => any} decode @param {AbortSignal} [cancel]
   */
  async #call(r, deadline, decode, cancel) {
    const half = (deadline - performance.now()) / 2; // a try that hangs leaves time for another
    for (let tries = 0; ; tries++) {
      const before = r.maybe;
      // A try may have waited while the machine was suspended.
      if (!r.read && before && Date.now() - before > this.#options.dedupWindow * 7 / 8) {
        throw new OutcomeUnknownError("maybe counted, so long ago that the server may not recognise a repeat", { key: r.key ?? r.id ?? "" });
      }
      r.maybe ||= Date.now(); // until the outcome is known
      try {
        return await this.#try(r, Math.min(deadline, performance.now() + half), decode);
      } catch (e) {
        if (!(e instanceof CountmillError)) throw e;
        e.key = r.key ?? r.id ?? "";
        if (!e.open) r.maybe = before;
        const wait = pause(tries, e);
        // 50: what a try needs at least
        if (!e.again || performance.now() + wait + 50 > deadline || cancel?.aborted) throw conclude(r, e);
        await sleep(wait, cancel);
        if (cancel?.aborted) throw conclude(r, e);
      }
    }
  }

  /** @param {Request} r @param {number} deadline @param {(answer: any) => any} decode */
  async #try(r, deadline, decode) {
    const left = deadline - performance.now();
    if (left <= 0) throw new UnavailableError("no time is left for a try", { again: true });
    const res = await this.#send(r, AbortSignal.timeout(Math.ceil(left)));
    try {
      return decode(JSON.parse(await read(res)));
    } catch (e) {
      throw broken(this.#base, e);
    }
  }

  /** Sends r once and resolves to a 2xx answer. Any other is thrown. @param {Request} r @param {AbortSignal} signal */
  async #send(r, signal) {
    /** @type {Record<string, string>} */
    const headers = r.body === undefined ? {} : { "Content-Type": r.type ?? "application/json" };
    if (r.key) headers["Idempotency-Key"] = r.key;
    const token = await this.#token(signal);
    if (token) headers.Authorization = "Bearer " + token;
    const url = this.#base + r.path + (r.exact ? (r.path.endsWith("?") || r.path.endsWith("&") ? "" : "&") + "format=string" : "");
    try {
      const res = await fetch(url, { method: r.method ?? (r.body === undefined ? "GET" : "POST"), headers, body: r.body, signal, redirect: "manual" });
      if (res.ok) return res;
      throw problem(res.status, await read(res), res.headers.get("Retry-After"));
    } catch (e) {
      throw broken(this.#base, e);
    }
  }

  /** @param {AbortSignal} signal */
  async #token(signal) {
    const { token } = this.#options;
    if (typeof token !== "function") return token ?? "";
    const late = new Promise((_, fail) => signal.addEventListener("abort", () => fail(signal.reason), { once: true }));
    try {
      return bearer(/** @type {string} */ (await Promise.race([token(), late])));
    } catch (e) {
      throw new DeniedError(`the token source: ${e}`, { status: 401 });
    }
  }
}

/** Resolves after ms, or earlier when signal aborts. @param {number} ms @param {AbortSignal} [signal] @param {boolean} [ref] */
function sleep(ms, signal, ref = true) {
  return after(ms, undefined, { signal, ref }).catch(() => {});
}

/** @param {Response} res */
async function read(res) {
  const decoder = new TextDecoder();
  let text = "";
  for await (const chunk of res.body ?? []) {
    text += decoder.decode(chunk, { stream: true });
    if (text.length > MAX_ANSWER) throw new Error(`an answer of more than ${MAX_ANSWER} characters`);
  }
  return text + decoder.decode();
}

/** @param {Error} e */
function logError(e) {
  if (!(e instanceof CountmillError)) console.error(e);
  else if (e.increments.length) console.error(`countmill: ${e.message}; increments given up:`, e.increments);
  else console.error(`countmill: ${e.message}`);
}

/** @param {number} tries @param {CountmillError} e */
function pause(tries, e) {
  return Math.max(Math.min(100 * 2 ** Math.min(tries, 10), 5000) * (0.5 + Math.random() / 2), e.retryAfter);
}

/** The error that the caller gets after the last try. @param {Request} r @param {CountmillError} e */
function conclude(r, e) {
  if (r.read && e instanceof OutcomeUnknownError) return new UnavailableError("nothing was read: " + e.message, { ...e, cause: e });
  const certain = [OutcomeUnknownError, ConflictError, IDsReusedError].some((known) => e instanceof known);
  if (r.read || !r.maybe || certain) return e;
  return new OutcomeUnknownError("an earlier try was maybe counted; then: " + e.message, { ...e, cause: e });
}

// What Node says of a certificate, or of an answer without TLS, before it sends anything.
const UNTRUSTED = ["CERT_HAS_EXPIRED", "DEPTH_ZERO_SELF_SIGNED_CERT", "SELF_SIGNED_CERT_IN_CHAIN", "UNABLE_TO_VERIFY_LEAF_SIGNATURE",
  "UNABLE_TO_GET_ISSUER_CERT_LOCALLY", "ERR_TLS_CERT_ALTNAME_INVALID", "ERR_SSL_WRONG_VERSION_NUMBER", "ERR_SSL_PACKET_LENGTH_TOO_LONG"];

/**
 * The error of a try without an answer. Nothing was sent if no connection was made.
 * @param {string} base @param {any} e @returns {CountmillError}
 */
function broken(base, e) {
  if (e instanceof CountmillError) return e;
  /** @type {any[]} */
  const causes = e?.cause?.errors ?? [e?.cause];
  const text = `${e?.message ?? e} ${causes.map((c) => c?.message ?? "").join(" ")}`.trim();
  if (e?.cause?.message === "bad port") return new InvalidError(`fetch refuses to call the port of ${base}: use another one`, { cause: e });
  if (UNTRUSTED.includes(e?.cause?.code)) return new InvalidError(`${base} is not trusted, or answers without TLS: ${text}`, { cause: e });
  if (causes.every((c) => c?.syscall === "connect" || c?.syscall === "getaddrinfo" || c?.code === "UND_ERR_CONNECT_TIMEOUT")) {
    return new UnavailableError(`nothing answers at ${base}: ${text}`, { again: true, cause: e });
  }
  return new OutcomeUnknownError(`no answer came from ${base}: ${text}`, { again: true, open: true, cause: e });
}

/** @param {number} status @param {string} text @param {string | null} retryAfter @returns {CountmillError} */
function problem(status, text, retryAfter) {
  /** @type {Record<string, any>} */
  let members = {};
  try {
    members = Object(JSON.parse(text));
  } catch {} // another program's error need not be JSON
  const name = String(members.type ?? "");
  const type = name.startsWith(PROBLEM) ? name.slice(PROBLEM.length) : "";
  let detail = members.detail || members.title || "";
  let Kind = ERRORS[type] ?? ERRORS[status] ?? (status >= 500 ? OutcomeUnknownError : InvalidError);
  if (!type) { // it may answer after the server has counted
    Kind = OutcomeUnknownError;
    detail = `another program answers, a proxy or no countmill${detail && ": "}${detail}`;
  }
  return new Kind(`${detail} (HTTP ${status})`, {
    status, problem: members,
    retryAfter: /^\d+$/.test(retryAfter ?? "") ? Number(retryAfter) * 1000 : 0,
    again: type !== "overflow" && REPEATED.includes(status),
    open: Kind === OutcomeUnknownError,
  });
}

/** A token without the newline of its file. A token is ASCII without spaces. @param {string} token */
function bearer(token) {
  token = String(token ?? "").trim();
  if (/[^!-~]/.test(token)) throw new InvalidError("the token has a space, or characters that no token has");
  return token;
}

/**
 * An increment as JSON. What the server would refuse is refused here, so that it cannot spoil a batch.
 * @param {string} counter @param {number | bigint} delta @param {{id?: string, time?: string}} [more]
 */
function line(counter, delta, more = {}) {
  if (typeof counter !== "string" || /\p{Surrogate}/u.test(counter)) throw new InvalidError("counter is not a string of valid UTF-16");
  const size = new TextEncoder().encode(counter).length;
  if (size < 1 || size > 500) throw new InvalidError(`counter has ${size} bytes (limit: 1 to 500 bytes)`);
  if (/\p{Cc}/u.test(counter)) throw new InvalidError("counter has a control character (limit: no control characters)");
  if (/^[ =]| $|^__.*__$/s.test(counter)) throw new InvalidError("counter begins or ends with a space, begins with =, or is of the form __x__");
  if (!Number.isSafeInteger(Number(delta)) || BigInt(delta) === 0n) {
    throw new InvalidError(`delta is ${delta} (limit: an integer from -(2^53-1) to 2^53-1, not 0)`);
  }
  return JSON.stringify({ counter, delta: Number(delta), ...more });
}

/** @param {Increment[]} adds @returns {Batch | undefined} */
function batch(adds) {
  const increments = adds.filter((i) => i.delta !== 0);
  const body = increments.map((i) => JSON.stringify(i) + "\n").join("");
  return increments.length ? { path: "/v1/increments", body, type: "application/x-ndjson", key: newKey(), maybe: 0, increments } : undefined;
}

/** @param {Map<string, number>} sums @returns {Increment[]} */
function entries(sums) {
  return [...sums].map(([counter, delta]) => ({ counter, delta }));
}

/** The totals of an answer, and the counters that have none. @param {any} a @returns {{totals: Total[], overflowed: string[]}} */
function totalsOf(a) {
  const wrong = (/** @type {any} */ t) => t.error !== undefined;
  return { totals: a.totals.filter((/** @type {any} */ t) => !wrong(t)).map(total), overflowed: a.totals.filter(wrong).map((/** @type {any} */ t) => t.counter) };
}

/** @param {any} t @returns {Total} */
function total(t) {
  return { counter: t.counter, total: BigInt(t.total), asOf: t.as_of, source: t.source, shards: t.shards, exists: t.exists, rate: t.rate ?? null };
}

/** @param {any} r @returns {Row} */
function row(r) {
  return { time: r.time, counter: r.counter, value: BigInt(r.value), partial: r.partial };
}

/** @param {any} a @returns {Rules} */
function rules(a) {
  const series = a.series.map((/** @type {any} */ r) => ({ pattern: r.pattern, keep: r.keep, begin: r.begin, ended: r.ended ?? null }));
  return { version: a.version, series };
}

/** @param {any} e @returns {JournalEntry} */
function entry(e) {
  return { key: e.key, time: e.time, counter: e.counter, delta: BigInt(e.delta), part: e.part, sender: e.sender ?? "" };
}

/** @param {any} a @returns {SequenceState} */
function state(a) {
  if (typeof a.last !== "number") throw new Error("no last value; is that a countmill?");
  return { sequence: a.sequence, last: a.last, exists: a.exists };
}

/** @param {any} a @returns {Index[]} */
function indexes(a) {
  return a.indexes.map((/** @type {any} */ x) => (
    { name: x.name, match: x.match, group: x.group, state: x.state, ranges: x.ranges, rangesDone: x.ranges_done, checkedAt: x.checked_at }));
}

/** @param {any} a @returns {Scan} */
function scan(a) {
  return { completeAsOf: a.complete_as_of, partial: a.partial };
}

/** @param {Record<string, string | number | undefined>} parameters numbers are milliseconds */
function query(parameters) {
  const given = Object.entries(parameters).filter(([, v]) => v !== undefined && v !== "");
  return String(new URLSearchParams(given.map(([k, v]) => [k, typeof v === "number" ? v.toFixed(3) + "ms" : String(v)])));
}

/** @param {any} answer @param {number} sent @returns {Accepted} */
function accepted(answer, sent) {
  // Something else has answered, and increments may be lost.
  if (answer.accepted !== sent) throw new Error(`${answer.accepted} increments accepted of ${sent}; is that a countmill?`);
  return { receipt: answer.receipt ?? "", countedAsOf: answer.counted_as_of ?? "" };
}

/** @param {any} answer @param {number} count @returns {{first: number, last: number}} */
function values({ first, last }, count) {
  if (!(first >= 1 && last - first === count - 1)) throw new Error(`the values ${first} to ${last} for a count of ${count}; is that a countmill?`);
  if (!Number.isSafeInteger(last)) throw new TotalOverflowError(`the values ${first} to ${last} are above 2^53-1`);
  return { first, last };
}

function newKey() {
  return crypto.randomUUID();
}
