// The calls of the page. All addresses are relative, so that the page works below any prefix.

// The keys of the tab's own token and of the token of a share link. A link does not replace the own one.
const ownKey = "countmill-token", sharedKey = "countmill-shared";
let token = "", shared = false;

// A Problem is an answer other than 2xx, with its text for people.
export class Problem extends Error {
  constructor(status, body) {
    super(body.detail || body.title || "the server answered " + status);
    this.status = status;
    this.field = body.field || "";
  }
}

const address = () => new URLSearchParams(location.hash.slice(1));

// begin takes the token from the address, where a share link has it, or else from the tab. The address of a share link goes on
// with "shared", so that the way back leads to the own token.
export function begin() {
  const hash = address(), given = hash.get("token");
  if (given) {
    store(sharedKey, given.trim());
    hash.delete("token");
    hash.set("shared", "yes");
    // Neither the history nor a copied address keeps the token.
    history.replaceState(null, "", location.pathname + location.search + "#" + hash);
  }
  shared = hash.has("shared");
  token = (given || (shared && stored(sharedKey)) || stored(ownKey)).trim();
}

// other reports whether the address has another token than begin took.
export const other = () => address().has("token") || address().has("shared") !== shared;

export const hasToken = () => token !== "";

export function setToken(value) {
  token = value.trim();
  store(ownKey, token);
  store(sharedKey, "");
}

// forget leaves the own token if that of a share link is in use.
export function forget() {
  if (!shared || !stored(sharedKey)) store(ownKey, "");
  store(sharedKey, "");
}

function stored(key) {
  try {
    return sessionStorage.getItem(key) || "";
  } catch { // a frame may have no storage
    return "";
  }
}

function store(key, value) {
  try {
    if (value) sessionStorage.setItem(key, value);
    else sessionStorage.removeItem(key);
  } catch { /* a frame may have no storage */ }
}

async function call(path, params, signal) {
  const query = new URLSearchParams(params).toString();
  const headers = token ? { Authorization: "Bearer " + token } : {};
  const answer = await fetch(path + (query ? "?" + query : ""), { headers, signal, cache: "no-store" });
  if (answer.ok) return answer;
  let body = {};
  try {
    body = await answer.json();
  } catch { /* a proxy answers in its own words */ }
  throw new Problem(answer.status, body);
}

// get gives up after 15 s.
async function get(path, params) {
  const answer = await call(path, params, AbortSignal.timeout(15000));
  return answer.json();
}

export const indexes = () => get("v1/indexes", {});

// top is the best counters of an index; query has index, and perhaps n, of, window and tz.
export const top = (query) => get("v1/top", { format: "string", ...query });

// journal is a page of the increments of a counter; query has counter and limit, and before or after.
export const journal = (query) => get("v1/journal", { format: "string", ...query });

export const overview = () => get("v1/overview", {});

// counters is a page of counters in the order of their names.
export function counters(prefix, limit, pageToken) {
  const params = { limit, format: "string" };
  if (prefix) params.prefix = prefix;
  if (pageToken) params.page_token = pageToken;
  return get("v1/counters", params);
}

export const totals = (names) => get("v1/totals", [["format", "string"], ...names.map((n) => ["counter", n])]);

// series is the flat rows of one counter, and how much of its sum no series ever had.
export async function series(counter, step, tz, from, to) {
  const params = { counter, step, tz, format: "string", from: from.toISOString(), to: to.toISOString() };
  const answer = await call("v1/series", params, AbortSignal.timeout(15000));
  return { rows: await answer.json(), without: BigInt(answer.headers.get("Countmill-Without-Curve") || 0) };
}

// silence is how long a stream may say nothing. The server says something every 15 s.
const silence = 40000;

// watch gives the data of each event to the function of its name in on, until the stream ends. It fails when the stream
// breaks. EventSource would do the same without a token: it sends no headers.
export async function watch(names, interval, signal, on) {
  const quiet = new AbortController(), parse = parser(on);
  let timer = 0;
  const listen = () => {
    clearTimeout(timer);
    timer = setTimeout(() => quiet.abort(new Error("the stream is silent")), silence);
  };
  try {
    listen(); // a server may not even answer
    const answer = await call("v1/watch", [["format", "string"], ["interval", interval], ...names.map((n) => ["counter", n])], AbortSignal.any([signal, quiet.signal]));
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    for (;;) {
      listen();
      const { done, value } = await reader.read();
      if (done) return;
      parse(value);
    }
  } finally {
    clearTimeout(timer);
    quiet.abort(); // nobody reads the rest
  }
}

// parser takes the text of a stream of server-sent events in pieces.
function parser(on) {
  let rest = "", name = "", data = "";
  return (piece) => {
    const lines = (rest + piece).split("\n");
    rest = lines.pop();
    for (const line of lines) {
      if (line.startsWith("event: ")) name = line.slice(7);
      else if (line.startsWith("data: ")) data += line.slice(6);
      else if (line === "" && data !== "") {
        on[name]?.(JSON.parse(data));
        name = data = "";
      }
    }
  };
}
