// {{name}}: counts its events under the key `count`, and logs each.
import { GetDB, Log, SetDB } from "@w3bstream/wasm-sdk";
import { payload } from "./payload";

// The node calls this to allocate memory for data, e.g. a payload.
export { alloc } from "@w3bstream/wasm-sdk";

/** The handler: called once for each event; `rid` is the event's id. */
export function start(rid: i32): i32 {
  const data = payload(rid);
  if (data == null) return -1;
  const known = GetDB("count");
  const count = 1 + (known == null ? 0 : I64.parseInt(String.UTF8.decode(known)));
  SetDB("count", String.UTF8.encode(count.toString()));
  Log(`count=${count} bytes=${data.byteLength}`);
  return 0;
}
