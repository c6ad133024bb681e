// The SDK's `GetDataByRID` returns text up to the first zero byte; this returns all bytes.

// @ts-ignore: decorator
@external("env", "ws_get_data")
declare function ws_get_data(rid: i32, ptrCell: usize, sizeCell: usize): i32;

/** The payload of an event as the device sent it, or null. */
export function payload(rid: i32): ArrayBuffer | null {
  const cells = heap.alloc(8);
  const code = ws_get_data(rid, cells, cells + 4);
  const size = load<u32>(cells + 4);
  const data = new ArrayBuffer(code == 0 ? size : 0);
  if (code == 0) memory.copy(changetype<usize>(data), load<u32>(cells), size);
  heap.free(cells);
  return code == 0 ? data : null;
}
