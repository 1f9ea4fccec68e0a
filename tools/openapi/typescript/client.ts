// A program that uses client/js, with its types.
import { Client, OutcomeUnknownError, type Total } from "countmill";

const c = new Client(process.argv[2] ?? "", { timeout: 20_000, token: async () => "" });
c.add("page:/home", 2n);
await c.flush();
const done = await c.increment("page:/home", 3).catch((e: unknown) => {
  if (e instanceof OutcomeUnknownError) return c.increment("page:/home", 3, { key: e.key });
  throw e;
});
const total: Total = await c.total("page:/home", { after: done });
const sum: bigint = total.total;
console.log(sum);
// @ts-expect-error a name is a string
await c.total(7).catch(() => {});
await c.close();
