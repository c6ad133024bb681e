// Functions of the node. Those of the SDK with the same purpose hide error codes: `GetDataByRID` also
// ends text at the first zero byte, and `Log` has one level.

// @ts-ignore: decorator
@external("env", "ws_log")
declare function ws_log(level: i32, text: usize, size: i32): i32;
// @ts-ignore: decorator
@external("env", "ws_get_data")
declare function ws_get_data(rid: i32, ptrCell: usize, sizeCell: usize): i32;
// @ts-ignore: decorator
@external("env", "ws_get_db")
declare function ws_get_db(key: usize, keySize: i32, ptrCell: usize, sizeCell: usize): i32;
// @ts-ignore: decorator
@external("env", "ws_set_db")
declare function ws_set_db(key: usize, keySize: i32, value: usize, size: i32): i32;

const OK: i32 = 0;
const NOT_FOUND: i32 = 2;

/** Levels of log lines. */
export const ERROR: i32 = 2;
export const WARNING: i32 = 3;
export const INFO: i32 = 4;
export const DEBUG: i32 = 5;

export function log(level: i32, text: string): void {
  const bytes = String.UTF8.encode(text);
  ws_log(level, changetype<usize>(bytes), bytes.byteLength);
}

/** The payload of the event, as the device sent it. */
export function payload(rid: i32): ArrayBuffer {
  const cells = heap.alloc(8);
  const code = ws_get_data(rid, cells, cells + 4);
  if (code != OK) throw new Error(`the payload cannot be read: code ${code}`);
  return taken(cells);
}

/** A value of the applet's key-value store, or null if there is none. */
export function stored(key: string): ArrayBuffer | null {
  const name = String.UTF8.encode(key);
  const cells = heap.alloc(8);
  const code = ws_get_db(changetype<usize>(name), name.byteLength, cells, cells + 4);
  if (code == OK) return taken(cells);
  if (code != NOT_FOUND) throw new Error(`${key} cannot be read: code ${code}`);
  heap.free(cells);
  return null;
}

/** Sets a value, which is on disk before the device is answered. */
export function store(key: string, value: ArrayBuffer): void {
  const name = String.UTF8.encode(key);
  const code = ws_set_db(
    changetype<usize>(name), name.byteLength, changetype<usize>(value), value.byteLength,
  );
  if (code != OK) throw new Error(`${key} cannot be stored: code ${code}`);
}

/** The data whose address and size the node wrote to two cells. */
function taken(cells: usize): ArrayBuffer {
  const address = load<u32>(cells), size = load<u32>(cells + 4);
  const data = new ArrayBuffer(size);
  memory.copy(changetype<usize>(data), address, size);
  heap.free(address);
  heap.free(cells);
  return data;
}
