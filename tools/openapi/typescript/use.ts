// Calls a server with the generated types: node use.js http://HOST:PORT
import createClient from "openapi-fetch";
import type { components, paths } from "./countmill.js";

const client = createClient<paths>({ baseUrl: process.argv[2] ?? "" });

const counted = await client.POST("/v1/increments", {
  params: { header: { "Idempotency-Key": "one" } },
  body: [{ counter: "page:/home", delta: Number.MAX_SAFE_INTEGER }, { counter: "page:/home", delta: 2 }],
});
if (counted.error) throw new Error(counted.error.detail);
console.log("accepted", counted.data.accepted);

const totals = await client.GET("/v1/totals", { params: { query: { counter: ["page:/home"], format: "string" } } });
if (totals.error) throw new Error(totals.error.detail);
for (const t of totals.data.totals) console.log("total", t.total);

const page = await client.GET("/v1/counters");
if (page.error) throw new Error(page.error.detail);
for (const t of page.data.totals) console.log("listed", t.counter);

const stop = new AbortController();
const watched = await client.GET("/v1/watch", {
  params: { query: { counter: ["page:/home"], format: "string" } },
  parseAs: "stream",
  signal: stop.signal,
});
let text = "";
for await (const chunk of watched.response.body!.pipeThrough(new TextDecoderStream())) {
  text += chunk;
  const data = /^data: (.*)$/m.exec(text)?.[1];
  if (data === undefined) continue;
  const event: components["schemas"]["WatchEvent"] = JSON.parse(data);
  console.log("watched", event.totals[0]?.total);
  break;
}
stop.abort();

const refused = await client.POST("/v1/increments", { body: { counter: "a", delta: 0 } });
console.log("refused", refused.error?.field);
