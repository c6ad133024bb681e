// {{name}}: counts its events under the key `count`, and logs each.
import { INFO, log, payload, store, stored } from "./node";

// The node calls this to allocate memory for data, e.g. a payload. The SDK also has JSON, SQL and
// more: import { JSON } from "@w3bstream/wasm-sdk".
export { alloc } from "@w3bstream/wasm-sdk";

/**
 * The handler: called once for each event; `rid` is the event's id. The device gets the number that
 * it returns. An exception ends the run: the node discards its writes, answers -1, and keeps the
 * event as a dead letter.
 */
export function start(rid: i32): i32 {
  const data = payload(rid);
  const known = stored("count");
  const count = 1 + (known == null ? 0 : I64.parseInt(String.UTF8.decode(known)));
  store("count", String.UTF8.encode(count.toString()));
  log(INFO, `count=${count} bytes=${data.byteLength}`);
  return 0;
}
