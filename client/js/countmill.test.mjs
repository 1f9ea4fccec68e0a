// Tests of countmill.mjs: node --test in this directory.
//
// COUNTMILL_BINARY is the path of a built countmill. The tests that need a real one skip without it.
import assert from "node:assert/strict";
import { execFile, spawn } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import http from "node:http";
import net from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { promisify } from "node:util";
import * as countmill from "./countmill.mjs";

const { Client } = countmill;
const binary = process.env.COUNTMILL_BINARY;
const sleep = (ms) => new Promise((done) => setTimeout(done, ms));
const real = { skip: binary ? false : "COUNTMILL_BINARY is not set: it is the path of a built countmill", timeout: 230_000 };
const limited = { timeout: 60_000 };

/** A client of a server that gives one answer after the other, and keeps what it got. */
async function scripted(t, steps, options = {}) {
  const s = { steps, got: [], reported: [] };
  const server = http.createServer(async (req, res) => {
    let body = "";
    for await (const chunk of req) body += chunk;
    s.got.push({ key: req.headers["idempotency-key"], body, url: req.url, headers: req.headers, method: req.method });
    (s.steps.shift() ?? answer(418))(res, body);
  });
  await new Promise((done) => server.listen(0, "127.0.0.1", () => done()));
  t.after(() => { server.closeAllConnections(); server.close(); });
  const base = `http://127.0.0.1:${server.address().port}`;
  scripts.set(base, s);
  const c = new Client(base, { timeout: 10_000, flushInterval: 2 ** 30, onError: (e) => s.reported.push(e), ...options });
  t.after(() => c.close({ timeout: 1 }).catch(() => {}));
  return { c, s, base };
}

const answer = (status, kind = "", members = {}, headers = {}) => (res) => {
  res.writeHead(status, { "Content-Type": "application/problem+json", ...headers });
  res.end(JSON.stringify({ type: "urn:countmill:problem:" + kind, status, detail: kind, ...members }));
};
const cut = (res) => res.socket.destroy();
/** The answer of a proxy, which may have problems of its own. */
const foreign = (status, headers = {}) => (res) => {
  res.writeHead(status, headers);
  res.end('{"type":"urn:proxy:problem:unavailable","detail":"no upstream","status":503}');
};

/** The step of a connection that is refused: the server does not see it. */
const unmade = () => {};
const scripts = new Map(); // by origin
const { fetch } = globalThis;
globalThis.fetch = (url, options) => {
  const s = scripts.get(new URL(url).origin);
  if (s?.steps[0] !== unmade) return fetch(url, options);
  s.steps.shift();
  return Promise.reject(new TypeError("fetch failed", { cause: Object.assign(new Error("refused"), { syscall: "connect" }) }));
};

const ok = (res, body) => answer(202, "", { accepted: body.trim().split("\n").length })(res);
const sum = (counter, n) => ({ counter, total: String(n), as_of: "2026-01-02T15:04:05.123456Z", source: "store", shards: 1, exists: true });
const event = (n) => `: hello\n\nevent: totals\ndata: ${JSON.stringify({ totals: [sum("a", n)], lag: null })}\n\n`;
const stream = (...events) => (res) => {
  res.writeHead(200, { "Content-Type": "text/event-stream" });
  res.end(events.join(""));
};

async function until(what, true_, ms = 10_000) {
  const deadline = performance.now() + ms;
  while (!true_()) {
    assert.ok(performance.now() < deadline, "waited in vain: " + what);
    await sleep(10);
  }
}

test("scripted server", { concurrency: 4, timeout: 200_000 }, async (suite) => {
  const tests = [];
  const it = (name, run) => tests.push(suite.test(name, limited, run));

  const table = readFileSync(new URL("../../docs/reference/retries.md", import.meta.url), "utf8");
  const rows = [...table.matchAll(/^\| (.*?) \| (yes|no) \| (\w+) \|.*\| (.*?) ?\|$/gm)];
  assert.ok(rows.length > 20, `${rows.length} rows of the table of retries`);
  for (const [, what, repeated, counted, name] of rows) {
    it(`retries: ${what}`, async (t) => {
      const [status, kind] = what.replaceAll("`", "").split(" ");
      const proxy = what.endsWith(" from another program");
      const special = { "no connection": unmade, "a connection that breaks": cut }[what] ?? (proxy ? foreign(Number(status)) : undefined);
      const step = special ?? answer(Number(status), kind, { accepted: 1 });
      const again = repeated === "yes";
      const want = name.replaceAll("`", "");
      const { c, s } = await scripted(t, again ? [step, step, ok] : [step]);
      const e = await c.increment("a").then(() => undefined, (e) => e);
      assert.equal(e?.name, again || !want ? undefined : want, String(e));
      assert.equal(s.steps.length, 0, "answers that were not asked for");
      assert.ok(s.got[0].key && s.got.every((g) => g.key === s.got[0].key && g.body === s.got[0].body), "repeats of one call");
      const one = special
        ? await scripted(t, Array(100).fill(step), { timeout: 300 })
        : await scripted(t, [answer(Number(status), kind, {}, { "Retry-After": "60" })]);
      if (want) await assert.rejects(one.c.increment("a"), (e) => e.name === want, "no time for more");
      if (!again) return;
      s.got.length = 0;
      s.steps = [step, ok];
      c.add("b");
      await c.flush();
      assert.ok(s.steps.length === 0 && s.got[0].key && s.got.every((g) => g.key === s.got[0].key && g.body === s.got[0].body), "repeats of a batch");
      const denied = await scripted(t, [step, answer(403, "forbidden")]);
      await assert.rejects(denied.c.increment("a"), (e) => e.name === (counted === "maybe" ? "OutcomeUnknownError" : "DeniedError"));
    });
  }

  it("an increment with an id has no key", async (t) => {
    const { c, s } = await scripted(t, [ok]);
    await c.increment("a", 1, { id: "x" });
    assert.deepEqual([s.got[0].key, JSON.parse(s.got[0].body)], [undefined, { counter: "a", delta: 1, id: "x" }]);
  });

  it("a repeat for a value has the same id", async (t) => {
    const { c, s } = await scripted(t, [answer(504, "outcome-unknown"), answer(200, "", { first: 7, last: 7 })]);
    assert.deepEqual(await c.next("a"), { first: 7, last: 7 });
    assert.equal(s.got[0].body, s.got[1].body);
    assert.ok(JSON.parse(s.got[0].body).id);
  });

  it("a server that hangs leaves time for another try", async (t) => {
    const { c, s } = await scripted(t, [() => {}, ok], { timeout: 20_000 });
    await c.increment("a");
    assert.equal(s.got.length, 2);
  });

  const conflicts = [{ position: 0, id: "x" }];
  for (const [name, steps, want] of [
    ["another delta", [answer(422, "ids-reused", { conflicts })], "IDsReusedError"],
    ["cut, then known to be another", [cut, answer(422, "id-reused")], "ConflictError"],
    ["another program", [foreign(418)], "OutcomeUnknownError"],
  ]) {
    it(`outcome: ${name}`, async (t) => {
      const { c, s } = await scripted(t, steps);
      const e = await c.increment("a").then(() => assert.fail("counted"), (e) => e);
      assert.equal(e.name, want, String(e));
      assert.ok(e instanceof countmill[want] && e instanceof countmill.CountmillError);
      assert.equal(s.steps.length, 0, "answers that were not asked for");
      if (want === "IDsReusedError") assert.deepEqual(e.conflicts, conflicts);
    });
  }

  it("reads change nothing", async (t) => {
    const { c } = await scripted(t, [answer(500, "overflow"), cut, answer(500, "internal", {}, { "Retry-After": "60" })]);
    await assert.rejects(c.total("a"), countmill.TotalOverflowError);
    await assert.rejects(c.total("a"), countmill.UnavailableError);
  });

  it("errors have the key", async (t) => {
    const late = { "Retry-After": "60" };
    for (const [call, good] of [
      [(c, key) => c.increment("a", 1, { key }), ok],
      [(c, id) => c.next("a", { id }), answer(200, "", { first: 7, last: 7 })],
    ]) {
      const { c, s } = await scripted(t, [foreign(503, late), good]);
      const e = await call(c).then(() => assert.fail("it worked"), (e) => e);
      assert.ok(e instanceof countmill.OutcomeUnknownError && e.key, String(e));
      await call(c, e.key);
      assert.deepEqual([s.got[0].key, s.got[0].body], [s.got[1].key, s.got[1].body]);
    }
    const { c } = await scripted(t, []);
    await assert.rejects(c.increment("a", 1, { key: "a\nb" }), countmill.InvalidError);
  });

  it("a batch stays while a proxy answers", async (t) => {
    const { c, s } = await scripted(t, [foreign(404), foreign(503), answer(429, "overloaded"), ok]);
    c.add("a", 2);
    await assert.rejects(c.flush(), (e) => e instanceof countmill.OutcomeUnknownError && e.increments.length === 0);
    await c.flush();
    assert.deepEqual([new Set(s.got.map((g) => g.key)).size, s.got.length, s.steps.length], [1, 4, 0]);
  });

  it("no server", async (t) => {
    const c = new Client("http://127.0.0.1:1"); // fetch refuses port 1
    await assert.rejects(c.increment("a"), (e) => e instanceof countmill.InvalidError && /127.0.0.1:1/.test(e.message));
    const free = net.createServer().listen(0, "127.0.0.1");
    await new Promise((done) => free.once("listening", done));
    const { port } = free.address();
    await new Promise((done) => free.close(done));
    const { base } = await scripted(t, []);
    await assert.rejects(new Client(base.replace("http:", "https:")).increment("a"), countmill.InvalidError);
    for (const host of ["127.0.0.1", "localhost"]) {
      await assert.rejects(new Client(`http://${host}:${port}`, { timeout: 2000 }).increment("a"), countmill.UnavailableError);
    }
  });

  it("a batch keeps its key until it is certain", async (t) => {
    const { c, s } = await scripted(t, [answer(504, "outcome-unknown", {}, { "Retry-After": "60" })]);
    c.add("a", 2);
    c.add("a", 3n);
    c.add("zero", 1);
    c.add("zero", -1);
    await assert.rejects(c.flush(), (e) => e instanceof countmill.OutcomeUnknownError && e.increments.length === 0);
    c.add("a", 7);
    s.steps = [answer(401, "unauthorized")]; // the token has expired
    await assert.rejects(c.flush(), countmill.OutcomeUnknownError);
    s.steps = [ok, ok];
    await c.flush(); // both batches
    const keys = s.got.map((g) => g.key);
    assert.equal(keys.length, 4);
    assert.ok(keys[0] === keys[1] && keys[0] === keys[2] && keys[2] !== keys[3], String(keys));
    assert.deepEqual(s.got.map((g) => g.body), [5, 5, 5, 7].map((delta) => `{"counter":"a","delta":${delta}}\n`));
  });

  it("flushes take turns", async (t) => {
    const { c, s } = await scripted(t, [ok, ok]);
    c.add("a", 1);
    const first = c.flush();
    c.add("a", 2);
    await Promise.all([first, c.flush(), c.flush()]);
    assert.deepEqual(s.got.map((g) => JSON.parse(g.body).delta), [1, 2]);
  });

  it("the background slows down while the token is refused", async (t) => {
    const refused = 6, flushInterval = 5, began = performance.now();
    const log = t.mock.method(console, "error", () => {});
    const { s, base } = await scripted(t, [...Array(refused).fill(answer(401, "unauthorized")), ok]);
    const c = new Client(base, { flushInterval });
    c.add("a", 2);
    while (s.got.length <= refused && performance.now() < began + 60_000) await sleep(10);
    const waited = performance.now() - began;
    // Each wait is twice the one before. A timer may end a millisecond early.
    assert.ok(waited >= flushInterval * (2 ** (refused + 1) - 1) - refused, String(waited));
    assert.equal(log.mock.callCount(), refused);
    for (const call of log.mock.calls) assert.deepEqual(call.arguments, ["countmill: unauthorized (HTTP 401)"]);
    await c.close();
    assert.equal(s.got.at(-1).body, '{"counter":"a","delta":2}\n');
  });

  it("a refused batch is handed back", async (t) => {
    const { c, s } = await scripted(t, [answer(403, "forbidden"), ok, answer(422, "ids-reused", { conflicts })]);
    c.add("a", 2);
    await assert.rejects(c.flush(), (e) => {
      assert.ok(e instanceof countmill.DeniedError);
      assert.deepEqual(e.increments, [{ counter: "a", delta: 2 }]);
      return true;
    });
    c.add("b");
    await c.flush();
    assert.deepEqual(JSON.parse(s.got[1].body), { counter: "b", delta: 1 });
    c.add("c");
    await assert.rejects(c.flush(), (e) => e instanceof countmill.IDsReusedError && e.increments.length === 0);
    await c.flush();
    assert.equal(s.got.length, 3, "all others were counted");
  });

  it("refused lines are handed back alone", async (t) => {
    const { c, s } = await scripted(t, []);
    const refused = (lines, ...then) => {
      s.steps.push(answer(403, "forbidden", { line: 1, lines }), ...then);
      for (const name of "abc") c.add(name);
    };
    const givesUp = async (name, counters, call = () => c.flush()) => {
      await assert.rejects(call(), (e) => {
        assert.deepEqual([e.name, e.increments.map((i) => i.counter).join("")], [name, counters]);
        return true;
      });
      assert.equal(s.steps.length, 0);
    };
    refused([1, 3], ok);
    await givesUp("DeniedError", "ac");
    assert.deepEqual(JSON.parse(s.got[1].body), { counter: "b", delta: 1 });
    assert.notEqual(s.got[0].key, s.got[1].key);
    await c.flush(); // nothing is left
    refused([1, 2, 3]);
    await givesUp("DeniedError", "abc");
    refused([1], answer(403, "forbidden", { lines: [2] }), answer(503, "unavailable", {}, { "Retry-After": "60" }));
    await givesUp("UnavailableError", "");
    s.steps.push(ok);
    await givesUp("DeniedError", "ac");
    assert.equal(s.got.at(-1).key, s.got.at(-2).key);
    for (const lines of [[], [0, 4], "123", [{}], null]) { // of no increment
      refused(lines);
      await givesUp("DeniedError", "abc");
    }
    s.steps.push(cut);
    refused([1]);
    await givesUp("OutcomeUnknownError", "abc"); // maybe counted: not under a new key
    refused([2], answer(503, "unavailable", {}, { "Retry-After": "60" }));
    await givesUp("UnavailableError", "bac", () => c.close());
  });

  it("no repeat beyond the deduplication window", async (t) => {
    const { c, s } = await scripted(t, [answer(504, "outcome-unknown", {}, { "Retry-After": "60" })], { dedupWindow: 20 });
    c.add("a");
    await assert.rejects(c.flush(), countmill.OutcomeUnknownError);
    await sleep(40);
    await assert.rejects(c.flush(), (e) => e instanceof countmill.OutcomeUnknownError && e.increments.length === 1);
    assert.equal(s.got.length, 1);
  });

  it("no repeat after a suspension", async (t) => {
    const { c, s } = await scripted(t, [], { dedupWindow: 200 });
    const late = (res) => setTimeout(cut, 300, res);
    for (const call of [() => c.increment("a"), () => c.next("a"), () => (c.add("a"), c.flush())]) {
      s.steps = [late, ok];
      await assert.rejects(call(), (e) => e instanceof countmill.OutcomeUnknownError && e.status === 0 && e.key !== "");
      assert.equal(s.steps.length, 1);
    }
  });

  it("memory is bounded", async (t) => {
    const { c, s } = await scripted(t, [ok], { maxCounters: 3 });
    for (const name of "abc") c.add(name);
    assert.throws(() => c.add("d"), countmill.OverloadedError);
    c.add("a", Number.MAX_SAFE_INTEGER - 1);
    assert.throws(() => c.add("a"), countmill.OverloadedError);
    await c.flush();
    assert.equal(JSON.parse(s.got[0].body.split("\n")[0]).delta, Number.MAX_SAFE_INTEGER);
    s.steps = [answer(503, "unavailable", {}, { "Retry-After": "60" })];
    c.add("e");
    await assert.rejects(c.flush(), (e) => e instanceof countmill.UnavailableError && e.retryAfter === 60_000);
    c.add("f");
    c.add("g");
    assert.throws(() => c.add("h"), countmill.OverloadedError, "what is on its way counts too");
    assert.throws(() => new Client("http://a", { maxCounters: 7501 }), countmill.InvalidError);
    const large = await scripted(t, [ok]);
    for (let n = 0; n < 7500; n++) large.c.add(String(n).padStart(6, "0") + '"'.repeat(494), -Number.MAX_SAFE_INTEGER); // the longest lines that there are
    await large.c.flush();
    assert.ok(Buffer.byteLength(large.s.got[0].body) < 8 << 20, "the server's limit");
  });

  it("every call ends", async (t) => {
    const drip = (res) => {
      res.writeHead(200, { "Content-Length": "100000" });
      const timer = setInterval(() => res.write(" "), 50);
      res.on("close", () => clearInterval(timer));
    };
    const began = performance.now();
    for (const step of [() => {}, drip]) {
      const { c } = await scripted(t, Array(20).fill(step), { timeout: 400 });
      await assert.rejects(c.total("a"), countmill.UnavailableError);
      await assert.rejects(c.increment("a"), countmill.OutcomeUnknownError);
    }
    const { c } = await scripted(t, [], { timeout: 100, token: () => new Promise(() => {}) });
    await assert.rejects(c.increment("a"), countmill.DeniedError);
    assert.ok(performance.now() - began < 8000);
  });

  it("another number accepted is no answer", async (t) => {
    for (const accepted of [0, 2]) {
      const { c, s } = await scripted(t, [answer(202, "", { accepted }), answer(403, "forbidden")]);
      await assert.rejects(c.increment("a"), countmill.OutcomeUnknownError);
      assert.equal(s.steps.length, 0, "it is repeated");
    }
    const { c, s } = await scripted(t, [answer(202, "", { accepted: 1 }), ok]);
    c.add("a");
    c.add("b");
    await c.flush();
    assert.deepEqual([s.got.length, s.got[0].key], [2, s.got[1].key]);
  });

  it("receipts", async (t) => {
    const early = "2026-01-02T15:04:05.123456Z", late = "2026-01-02T15:04:06.000001Z";
    const read = answer(200, "", { totals: [sum("a", 1)] });
    const { c, s } = await scripted(t, [
      answer(202, "", { accepted: 1, receipt: "AQ_-" }), read, answer(202, "", { accepted: 1, counted_as_of: late }), read, read, read,
      answer(409, "not-counted-yet"), answer(410, "receipt-expired"), answer(410, "other-database"),
      answer(200, "", { totals: [sum("a", 1)], dead_letters: [{ key: "l-1", discarded: false }] })]);
    let done = await c.increment("a");
    assert.deepEqual(done, { receipt: "AQ_-", countedAsOf: "" });
    await c.total("a", { after: done, wait: 500, minAsOf: early });
    done = await c.increment("a");
    assert.deepEqual(done, { receipt: "", countedAsOf: late });
    const { asOf } = await c.total("a", { after: done });
    assert.equal(asOf, early);
    await c.total("a", { after: done, minAsOf: asOf });
    await c.total("a", { minAsOf: asOf });
    for (const name of ["NotCountedYetError", "ReceiptGoneError", "ReceiptGoneError"]) {
      await assert.rejects(c.total("a", { after: "AQ_-" }), countmill[name]);
    }
    await assert.rejects(c.total("a", { after: "AQ_-" }), (e) =>
      e instanceof countmill.DeadLetteredError && e.problem.dead_letters[0].key === "l-1" && e.problem.totals[0].total === 1n);
    const asked = s.got.filter((g) => g.url.startsWith("/v1/totals")).map((g) => decodeURIComponent(g.url).slice("/v1/totals?".length, -"&format=string".length));
    assert.deepEqual(asked, ["min_as_of=" + early + "&after=AQ_-&wait=500.000ms", "min_as_of=" + late, "min_as_of=" + late, "min_as_of=" + early, ...Array(4).fill("after=AQ_-&wait=2000.000ms")]);
  });

  it("Retry-After", async (t) => {
    const { c } = await scripted(t, [answer(429, "quota", {}, { "Retry-After": "1" }), ok]);
    const began = performance.now();
    await c.increment("a");
    assert.ok(performance.now() - began > 990);
  });

  it("background and close", async (t) => {
    const { c, s } = await scripted(t, [answer(400, "invalid"), ok, ok], { flushInterval: 20 });
    c.add("a");
    await until("the refusal is reported", () => s.reported.length);
    assert.deepEqual(s.reported[0].increments, [{ counter: "a", delta: 1 }]);
    c.add("b");
    await until("the next batch is sent", () => s.got.length > 1);
    c.add("c");
    await c.close();
    assert.match(s.got.at(-1).body, /"c"/);
    assert.throws(() => c.add("a"), countmill.ClosedError);
    await assert.rejects(c.increment("a"), countmill.ClosedError);
    const other = await scripted(t, [answer(503, "unavailable", {}, { "Retry-After": "60" }), ok]);
    other.c.add("a");
    await assert.rejects(other.c.close(), (e) => e instanceof countmill.UnavailableError && e.increments.length === 1);
    await other.c.close();
    assert.equal(other.s.got[0].key, other.s.got[1].key);
  });

  it("watch connects again", async (t) => {
    const problem = 'event: problem\ndata: {"type":"urn:countmill:problem:unavailable","status":503}\n\n';
    const { c, s } = await scripted(t, [stream(event(1), event(2), problem), cut, answer(503, "unavailable"), stream(event(3), event(2n ** 63n - 1n)), answer(403, "forbidden")]);
    const seen = [];
    await assert.rejects(async () => {
      for await (const u of c.watch(["a", "b c"], { maxStaleness: 0 })) seen.push([u.totals[0].total, u.whole]);
    }, countmill.DeniedError);
    assert.deepEqual(seen, [[1n, true], [2n, false], [3n, true], [2n ** 63n - 1n, false]]);
    assert.equal(s.reported.length, 5, String(s.reported));
    assert.equal(s.got[0].url, "/v1/watch?counter=a&counter=b+c&max_staleness=0.000ms&format=string");
  });

  it("watch ends", async (t) => {
    const quiet = (res) => { res.writeHead(200); res.write(event(5)); };
    const { c } = await scripted(t, [quiet, quiet, quiet]);
    let n = 0;
    const stop = new AbortController();
    for await (const u of c.watch(["a"], { signal: stop.signal })) {
      n += Number(u.totals[0].total);
      setTimeout(() => stop.abort(), 50);
    }
    for await (const u of c.watch(["a"])) { n += Number(u.totals[0].total); break; }
    for await (const u of c.watch(["a"])) {
      n += Number(u.totals[0].total);
      setTimeout(() => c.close(), 50);
    }
    assert.equal(n, 15);
    await assert.rejects(c.watch(["a"]).next(), countmill.ClosedError);
  });

  it("watch gives changes and what is gone", async (t) => {
    const changes = (totals, more) => `event: totals\ndata: ${JSON.stringify({ totals: totals.map(([name, n]) => sum(name, n)), lag: null, ...more })}\n\n`;
    const { c, s } = await scripted(t, [
      stream(changes([["a", 1], ["b", 1], ["c", 1]]), changes([["a", 2]]), changes([["b", 5]], { removed: ["c"], truncated: true })),
      stream(changes([["a", 3], ["d", 1]])), answer(403, "forbidden")]);
    const all = new Map(), seen = [];
    await assert.rejects(async () => {
      for await (const u of c.watch([], { prefix: "", limit: 3, rates: true })) {
        if (u.whole) all.clear();
        for (const t of u.totals) all.set(t.counter, t.total);
        for (const name of u.removed) assert.ok(all.delete(name));
        seen.push([[...all].map(String).join(" "), u.truncated]);
      }
    }, countmill.DeniedError);
    assert.deepEqual(seen, [["a,1 b,1 c,1", false], ["a,2 b,1 c,1", false], ["a,2 b,5", true], ["a,3 d,1", false]]);
    assert.equal(s.got[0].url, "/v1/watch?prefix=&limit=3&rates=true&format=string");
  });

  it("a slow caller of watch gets the newest", async (t) => {
    const quiet = (res) => { res.writeHead(200); res.write(event(1000)); };
    const { c } = await scripted(t, [stream(...Array.from({ length: 500 }, (_, n) => event(n))), quiet]);
    const { now } = performance;
    t.after(() => { performance.now = now; });
    let slow = 0, n = 0;
    for await (const u of c.watch(["a"])) {
      if (u.totals[0].total === 1000n) {
        assert.ok(u.whole);
        break;
      }
      n++;
      slow += 600; // ms that the caller takes for it
      performance.now = () => now.call(performance) + slow;
    }
    assert.ok(n < 20, `${n} updates before the newest`);
  });

  it("lists name what overflowed", async (t) => {
    const { c, s } = await scripted(t, [answer(200, "", { totals: [sum("a", 1)], overflowed: ["b"], next_page_token: "n/1" }), answer(200, "", { totals: [sum("c", -(2n ** 63n))] })]);
    const seen = [];
    await assert.rejects(async () => { for await (const t of c.list("x&")) seen.push([t.counter, t.total]); }, (e) => e instanceof countmill.TotalOverflowError && /"b"/.test(e.message));
    assert.deepEqual(seen, [["a", 1n], ["c", -(2n ** 63n)]]);
    assert.equal(s.got[1].url, "/v1/counters?prefix=x%26&limit=1000&page_token=n%2F1&format=string");
  });

  it("the journal goes over pages", async (t) => {
    const line = (key, delta) => ({ key, time: "2026-11-25T10:00:00Z", counter: "a", delta, part: "00", sender: key === "k1" ? "shop" : undefined });
    const { c, s } = await scripted(t, [answer(200, "", { entries: [line("k1", "5")], next: "k1", settled_until: "" }), answer(200, "", { entries: [line("k2", "-9007199254740993")], settled_until: "" }),
      answer(200, "", { entries: [line("k1", "5")], next: "k1", previous: "k1", settled_until: "2026-11-25T10:00:01Z" })]);
    const seen = [];
    for await (const e of c.journal("a&", { after: "k0" })) seen.push([e.key, e.delta, e.sender]);
    assert.deepEqual(seen, [["k1", 5n, "shop"], ["k2", -9007199254740993n, ""]]);
    assert.equal(s.got[0].url, "/v1/journal?counter=a%26&after=k0&limit=1000&format=string");
    assert.equal(s.got[1].url, "/v1/journal?counter=a%26&after=k1&limit=1000&format=string");
    const page = await c.journalPage("a", { before: "f".repeat(40), limit: 1 });
    assert.deepEqual([page.entries[0].delta, page.next, page.previous, page.settledUntil], [5n, "k1", "k1", "2026-11-25T10:00:01Z"]);
    assert.equal(s.got[2].url, `/v1/journal?counter=a&before=${"f".repeat(40)}&limit=1&format=string`);
  });

  it("an overflow beside a total", async (t) => {
    const fine = { counter: "a", total: "7", as_of: "2026-11-25T10:00:01Z", source: "store", shards: 1, exists: true };
    const { c } = await scripted(t, [answer(200, "", { totals: [{ ...fine, counter: "o", total: null, error: "urn:countmill:problem:overflow" }, fine], lag: null })]);
    await assert.rejects(c.totals(["o", "a"]), (/** @type {any} */ e) =>
      e instanceof countmill.TotalOverflowError && e.problem.overflowed[0] === "o" && e.problem.totals[0].total === 7n);
  });

  it("series", async (t) => {
    const row = { time: "2026-11-25T00:00:00+05:30", counter: "a", value: String(2n ** 60n), partial: false };
    const { c, s } = await scripted(t, [(res) => { res.writeHead(200); res.end(JSON.stringify([row, row])); }]);
    const rows = await c.series(["a", "b&"], { step: "1d", tz: "Asia/Kolkata", from: new Date("2026-11-01T00:00:00Z") });
    assert.deepEqual(rows, [{ ...row, value: 2n ** 60n }, { ...row, value: 2n ** 60n }]);
    assert.equal(s.got[0].url, "/v1/series?counter=a&counter=b%26&step=1d&tz=Asia%2FKolkata&from=2026-11-01T00%3A00%3A00.000Z&format=string");
  });

  it("boards of a window", async (t) => {
    const scan = { complete_as_of: "2026-11-25T10:00:00Z", partial: true }, total = String(2n ** 60n);
    const { c, s } = await scripted(t, [answer(200, "", { top: [{ counter: "a", total, rank: 1 }], overflowed: ["o"], ...scan }), answer(200, "", { counter: "a", total, rank: 1, of: 5, ...scan })]);
    const read = { completeAsOf: "2026-11-25T10:00:00Z", partial: true };
    assert.deepEqual(await c.top("sites", { n: 1, of: "groups", window: "today", tz: "Asia/Kolkata" }), { top: [{ counter: "a", total: 2n ** 60n, rank: 1 }], overflowed: ["o"], ...read });
    assert.deepEqual(await c.rank("sites", "a", { window: "1h", tz: "Asia/Kolkata" }), { counter: "a", total: 2n ** 60n, rank: 1, of: 5, ...read });
    assert.deepEqual(s.got.map((g) => g.url), ["/v1/top?index=sites&n=1&of=groups&window=today&tz=Asia%2FKolkata&format=string",
      "/v1/rank?index=sites&counter=a&window=1h&tz=Asia%2FKolkata&format=string"]);
  });

  const index = { name: "sites", match: "page:{site}:*", group: "site:{site}", state: "building", ranges: 2, ranges_done: 1, checked_at: null };
  for (const [call, method, url, members] of [
    [(c) => c.addSeries("a*", "15m:400d"), "POST", "/v1/rules/series", { version: 1, series: [], journal: [] }],
    [(c) => c.removeSeries("a*"), "DELETE", "/v1/rules/series?pattern=a*", { version: 1, series: [], journal: [] }],
    [(c) => c.createIndex("sites", "page:{site}:*", "site:{site}"), "POST", "/v1/indexes", { indexes: [index] }],
    [(c) => c.deleteIndex("a&b"), "DELETE", "/v1/indexes?name=a%26b", { indexes: [index] }],
    [(c) => c.deleteSequence("user:1"), "DELETE", "/v1/sequences?sequence=user%3A1", { sequence: "user:1", last: 7, exists: true }],
  ]) {
    it(`${method} ${url} may be repeated`, async (t) => {
      const { c, s } = await scripted(t, [cut, answer(200, "", members)]);
      await call(c);
      assert.deepEqual(s.got.map((g) => [g.method, g.url, g.body]), Array(2).fill([method, url, s.got[0].body]));
      s.steps = [cut, answer(404, "not-found")];
      await assert.rejects(call(c), countmill.OutcomeUnknownError);
      s.steps = [answer(200), answer(404, "not-found")]; // the first one of another program
      await assert.rejects(call(c), countmill.OutcomeUnknownError);
      s.steps = [answer(404, "not-found")];
      await assert.rejects(call(c), countmill.NotFoundError);
    });
  }

  it("addresses and tokens", async (t) => {
    for (const base of ["", "127.0.0.1:8080", "ftp://a", "http://a?b", "http://u:p@a", "http://"]) {
      assert.throws(() => new Client(base), countmill.InvalidError, base);
    }
    assert.throws(() => new Client("http://example.com", { token: "t" }), /plain http/);
    new Client("http://example.com", { token: "t", insecure: true });
    assert.throws(() => new Client("http://127.0.0.1", { token: "a b" }), (e) => e instanceof countmill.InvalidError && !/a b/.test(e.message));
    const file = await scripted(t, [ok], { token: " one\r\n" });
    await file.c.increment("a");
    assert.equal(file.s.got[0].headers.authorization, "Bearer one");
    const tokens = ["one", "two\n", "a\nb"];
    const { c, s } = await scripted(t, [ok, ok], { token: async () => tokens.shift() ?? assert.fail("no token is left") });
    await c.increment("a");
    await c.increment("a");
    assert.deepEqual(s.got.map((g) => g.headers.authorization), ["Bearer one", "Bearer two"]);
    await assert.rejects(c.increment("a"), countmill.DeniedError); // not a header
    await assert.rejects(c.increment("a"), countmill.DeniedError); // none is left
  });

  await Promise.all(tests);
});

/** A countmill up on one port, which can be killed and started again. */
class Server {
  dir = mkdtempSync(join(tmpdir(), "countmill-js-"));

  async listen() {
    for (let tries = 0; !this.port && tries < 100; tries++) { // below the ports that the system gives to others
      const port = 15_000 + Math.floor(Math.random() * 15_000);
      const s = net.createServer();
      await new Promise((done) => s.once("error", done).listen(port, "127.0.0.1", () => { this.port = port; s.close(done); }));
    }
    this.base = `http://127.0.0.1:${this.port}`;
    this.start();
  }

  start() {
    this.process = spawn(binary, ["up", "--listen", `127.0.0.1:${this.port}`, "--data", this.dir], { stdio: "ignore" });
    this.exited = new Promise((done) => this.process.once("exit", done));
  }

  async kill() {
    this.process.kill("SIGKILL");
    await this.exited;
  }

  async end() {
    await this.kill();
    rmSync(this.dir, { recursive: true, force: true });
  }
}

test("real countmill", real, async (suite) => {
  const server = new Server();
  await server.listen();
  suite.after(() => server.end());
  const c = new Client(server.base);

  await suite.test("README", limited, async (t) => {
    const dir = mkdtempSync(join(tmpdir(), "countmill-js-readme-"));
    t.after(() => rmSync(dir, { recursive: true, force: true }));
    const [, code] = /```js\n(.*?)```/s.exec(readFileSync(new URL("README.md", import.meta.url), "utf8"));
    const at = new URL("countmill.mjs", import.meta.url).href;
    writeFileSync(join(dir, "example.mjs"), code.replace("http://127.0.0.1:8080", server.base).replace('"countmill"', JSON.stringify(at)));
    const { stdout } = await promisify(execFile)(process.execPath, [join(dir, "example.mjs")], { timeout: 50_000 });
    assert.equal(stdout, "page:/home 1n\norders 1n\n");
  });

  await suite.test("totals are exact", limited, async () => {
    for (let i = 0; i < 5; i++) {
      c.add("big", 2n ** 52n + 1n);
      await c.flush();
    }
    await c.increment("big", Number.MAX_SAFE_INTEGER);
    assert.equal((await c.total("big", { maxStaleness: 0 })).total, 5n * (2n ** 52n + 1n) + 2n ** 53n - 1n);
    const got = await c.totals(["nobody's", "big"]);
    assert.deepEqual(got.map((t) => [t.counter, t.exists]), [["nobody's", false], ["big", true]]);
    for (let i = 0; i < 2; i++) await c.increment("with id", 1, { id: "x", time: new Date() });
    await assert.rejects(c.increment("with id", 2, { id: "x" }), (e) => e instanceof countmill.IDsReusedError && e.conflicts[0].id === "x");
    assert.equal((await c.total("with id")).total, 1n);
  });

  await suite.test("reads what it wrote", limited, async () => {
    for (let n = 1n; n <= 20n; n++) {
      const after = await c.increment("own");
      assert.ok(after.countedAsOf);
      assert.equal((await c.total("own", { after, maxStaleness: 60_000 })).total, n);
    }
  });

  await suite.test("sequences", limited, async () => {
    assert.deepEqual(await c.next("numbers"), { first: 1, last: 1 });
    const time = new Date();
    for (let i = 0; i < 2; i++) assert.deepEqual(await c.next("numbers", { id: "x", count: 3, time }), { first: 2, last: 4 });
    await assert.rejects(c.next("numbers", { id: "x", count: 2 }), countmill.ConflictError);
    await assert.rejects(c.next("numbers", { id: "y", time: new Date("2020-01-01") }), countmill.IDExpiredError);
    await assert.rejects(c.next("numbers", { count: 1001 }), countmill.InvalidError);
    assert.deepEqual(await c.next("numbers"), { first: 5, last: 5 });
    assert.deepEqual(await c.sequence("numbers"), { sequence: "numbers", last: 5, exists: true });
    assert.deepEqual(await c.deleteSequence("numbers"), { sequence: "numbers", last: 5, exists: true });
    assert.deepEqual(await c.sequence("numbers"), { sequence: "numbers", last: 5, exists: false });
  });

  await suite.test("series", limited, async () => {
    await c.addSeries("curve:*", "1m:6h,15m:400d");
    assert.deepEqual((await c.rules()).series.map((r) => [r.pattern, r.keep, r.ended]), [["curve:*", "1m:6h,15m:400d", null]]);
    await c.increment("curve:a", 3);
    const rows = await c.series(["curve:a"], { step: "1d", tz: "Asia/Kathmandu" });
    const { counter, partial } = rows.at(-1);
    assert.deepEqual([rows.reduce((sum, r) => sum + r.value, 0n), counter, partial], [3n, "curve:a", true]);
    await assert.rejects(c.series(["no curve"]), countmill.NotFoundError);
    assert.notEqual((await c.removeSeries("curve:*")).series[0].ended, null);
  });

  await suite.test("indexes and boards", limited, async () => {
    for (const [name, n] of [["board:a:1", 5], ["board:a:2", 7], ["board:b:1", 2 ** 50]]) await c.increment(name, n);
    let [index] = await c.createIndex("boards", "board:{x}:*", "x:{x}");
    for (const end = performance.now() + 30_000; index.state !== "serving"; [index] = await c.indexes()) assert.ok(performance.now() < end, "the index serves");
    assert.deepEqual([index.name, index.match, index.group], ["boards", "board:{x}:*", "x:{x}"]);
    const { top } = await c.top("boards", { n: 2 });
    assert.deepEqual(top, [{ counter: "board:b:1", total: 2n ** 50n, rank: 1 }, { counter: "board:a:2", total: 7n, rank: 2 }]);
    assert.deepEqual((await c.top("boards", { of: "groups" })).top.map((t) => [t.counter, t.total]), [["=x:b", 2n ** 50n], ["=x:a", 12n]]);
    const { rank, of, total, counter } = await c.rank("boards", "board:a:2");
    assert.deepEqual([rank, of, total, counter], [2, 3, 7n, "board:a:2"]);
    assert.equal((await c.rank("boards", "board:c:none")).rank, null);
    await assert.rejects(c.top("boards", { window: "today", tz: "Asia/Kolkata" }), countmill.NotFoundError); // no rule for series
    assert.equal((await c.deleteIndex("boards"))[0].state, "deleting");
  });

  await suite.test("names are refused as the server does", limited, async () => {
    for (const name of ["", "x".repeat(501), "ä".repeat(251), "a\x00", "a\x7f", "a\x85", " a", "a ", "=a", "____", "__a__", "__\u2028__"]) {
      assert.throws(() => c.add(name), countmill.InvalidError, JSON.stringify(name));
      const res = await fetch(server.base + "/v1/increments", { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ counter: name }) });
      assert.equal(res.status, 400, JSON.stringify(name));
    }
    for (const delta of [0, 0n, 2 ** 53, -(2 ** 53), 1.5, NaN, "1.5"]) assert.throws(() => c.add("a", delta), countmill.InvalidError, String(delta));
    assert.throws(() => c.add("\ud800"), countmill.InvalidError);
    const names = ["x".repeat(500), "ä".repeat(250), "__", "___", "_a__", "\u00a0a", '"\\/<&>', "\u{1f600}", "a\u2028b", "\u3000"];
    for (const name of names) c.add(name, 2);
    await c.flush();
    assert.deepEqual((await c.totals(names)).map((t) => t.total), names.map(() => 2n));
  });

  await suite.test("list goes over pages", limited, async () => {
    const want = Array.from({ length: 2300 }, (_, n) => [`list:${String(n).padStart(4, "0")}`, BigInt(n + 1)]);
    for (const [name, n] of want) c.add(name, n);
    await c.flush();
    const got = [];
    for await (const t of c.list("list:")) got.push([t.counter, t.total]);
    assert.deepEqual(got, want);
  });

  // 4,000 keyed requests and as many adds from 8 loops, while the server is killed: all count once.
  await suite.test("kills", { timeout: 200_000 }, async (t) => {
    const c = new Client(server.base, { timeout: 100_000, flushInterval: 20, onError: () => {} });
    const want = [0, 1, 2, 3, 4].map((k) => { let n = 0; for (let i = k; i < 500; i += 5) n += i + 1; return BigInt(8 * n); });
    let done = 0;
    const seen = [], stop = new AbortController();
    t.after(() => stop.abort());
    t.after(() => c.close({ timeout: 1000 }).catch(() => {}));
    const watched = (async () => {
      for await (const u of c.watch(["kills:0"], { signal: stop.signal, maxStaleness: 0 })) {
        seen.push(...u.totals.map((t) => t.total)); // none if only the lag has changed
        if (seen.at(-1) === want[0]) return;
      }
    })();
    const loops = Promise.all(Array.from({ length: 8 }, async (_, n) => {
      for (let i = 0; i < 500; i++) {
        await c.increment(`kills:${i % 5}`, i + 1, i % 2 ? { id: `${n}-${i}` } : {});
        c.add(`added:${n % 3}`, i + 1);
        done++;
      }
    }));
    loops.catch(() => {});
    for (const at of [500, 1500, 2500, 3500]) {
      await Promise.race([until(`${at} requests`, () => done >= at, 60_000), loops]);
      await server.kill();
      server.start();
    }
    await loops;
    await c.flush();
    assert.deepEqual((await c.totals(want.map((_, k) => `kills:${k}`), { maxStaleness: 0 })).map((t) => t.total), want);
    assert.deepEqual((await c.totals(["added:0", "added:1", "added:2"], { maxStaleness: 0 })).map((t) => t.total), [375_750n, 375_750n, 250_500n]);
    await Promise.race([watched, until("the watch sees the total", () => seen.at(-1) === want[0], 30_000)]);
    assert.equal(seen.at(-1), want[0]);
    assert.ok(seen.every((n, i) => i === 0 || n >= seen[i - 1]), String(seen));
    await c.close();
    t.diagnostic(`${done} keyed requests and as many adds, 4 kills, ${seen.length} updates seen`);
  });
  await c.close();
});
