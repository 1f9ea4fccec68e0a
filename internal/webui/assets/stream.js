// One stream at a time: a browser opens six connections to a host.

import * as api from "./api.js";

const most = 100; // names in the query of a stream

export class Stream {
  // onEvent gets the data of an event, onProblem why there are none now. The stream goes on unless the token is wrong.
  constructor(onEvent, onProblem) {
    Object.assign(this, { onEvent, onProblem });
    this.names = [];
    this.run = null; // of the present stream
    this.interval = "1s"; // how often the server looks for changes
  }

  // set watches these names from now on, the first hundred.
  set(names) {
    const next = [...new Set(names)].slice(0, most).sort();
    if (this.run && next.join("\n") === this.names.join("\n")) return;
    this.names = next;
    this.stop();
    if (next.length) this.start();
  }

  stop() {
    this.run?.abort();
    this.run = null;
  }

  async start() {
    const run = (this.run = new AbortController());
    for (let wait = 500; !run.signal.aborted; wait = Math.min(2 * wait, 15000)) {
      try {
        await api.watch(this.names, this.interval, run.signal, {
          totals: (event) => {
            wait = 500;
            if (!run.signal.aborted) this.onEvent(event);
          },
          problem: (body) => run.signal.aborted || this.onProblem(new api.Problem(body.status, body)),
        });
      } catch (err) {
        if (run.signal.aborted) return;
        this.onProblem(err);
        if (err.status === 401 || err.status === 403) return;
      }
      await new Promise((done) => setTimeout(done, wait * (0.5 + Math.random() / 2)));
    }
  }
}
