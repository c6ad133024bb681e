// A device that sends events over HTTP, in any JavaScript that has fetch(): Node 18 or newer, Deno,
// browsers. Each event has an id, and is sent again with the same id until the node has answered.
// Events wait in memory: what is not sent when the program ends is lost.

const FIRST_PAUSE_MS = 500;
const LONGEST_PAUSE_MS = 60_000;
const WAITING_LIMIT = 10_000;

/** What a node refuses for good. `status` and `key` are those of docs/reference/errors.md. */
export class RefusedError extends Error {
  constructor(status, key, text) {
    super(`${status} ${key}: ${text}`);
    this.status = status;
    this.key = key;
  }
}

const defaultSleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

export class Device {
  #waiting = Promise.resolve();
  #count = 0;

  /**
   * @param url the node, e.g. https://node.example:8888
   * @param more.timeoutMs how long the node may be silent before an event is sent again
   * @param more.onRetry called with a text and a pause in ms before an event is sent again
   */
  constructor(url, project, token, { timeoutMs = 30_000, onRetry, sleep = defaultSleep } = {}) {
    this.channel = `${url.replace(/\/+$/, "")}/srv-applet-mgr/v0/event/${encodeURIComponent(project)}`;
    Object.assign(this, { token, timeoutMs, onRetry, sleep });
  }

  /** How many events have no answer yet. */
  get pending() {
    return this.#count;
  }

  /**
   * Send an event after those before it. The promise has the results of its handlers when the
   * event's effects are on the node's disk; a RefusedError when the node will never take it.
   */
  send(type, payload, { id = crypto.randomUUID(), at = Date.now() } = {}) {
    if (this.#count >= WAITING_LIMIT) throw new Error(`${WAITING_LIMIT} events wait for the node`);
    const raw = typeof payload === "string" || ArrayBuffer.isView(payload);
    const body = raw ? payload : JSON.stringify(payload);
    // Type, id, time and payload are what the node recognises an event by: they never change.
    const query = new URLSearchParams({ eventType: type, eventID: id, timestamp: at });
    this.#count += 1;
    const sent = this.#waiting.then(() => this.#deliver(`${this.channel}?${query}`, body));
    this.#waiting = sent.catch(() => {}).finally(() => (this.#count -= 1));
    return sent;
  }

  async #deliver(address, body) {
    for (let attempt = 0; ; attempt += 1) {
      let problem, retryAfterS = 0;
      try {
        const answer = await fetch(address, {
          method: "POST",
          headers: { Authorization: `Bearer ${this.token}` },
          body,
          signal: AbortSignal.timeout(this.timeoutMs),
        });
        const text = await answer.text();
        const value = parsed(text);
        if (answer.status === 201 && value && "results" in value) {
          if (value.error) throw new RefusedError(401, value.error, "the token is of another project");
          if (value.results === null) throw new RefusedError(404, "StrategyNotFound", "no strategy");
          return value.results;
        }
        // Only a node's own error is for good: a network's login page answers with 4xx, too.
        const { status } = answer;
        if (value?.key && status >= 400 && status < 500 && status !== 429)
          throw new RefusedError(status, value.key, value.desc || value.msg);
        problem = `${status} ${value?.key ?? text.slice(0, 80)}`;
        retryAfterS = Number(answer.headers.get("Retry-After")) || 0;
      } catch (error) {
        if (error instanceof RefusedError) throw error;
        problem = error.cause?.message || error.message;
      }
      const growing = Math.min(LONGEST_PAUSE_MS, FIRST_PAUSE_MS * 2 ** attempt);
      const pauseMs = Math.max(growing * (1 - Math.random() / 2), retryAfterS * 1000);
      this.onRetry?.(problem, pauseMs);
      await this.sleep(pauseMs);
    }
  }
}

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}
