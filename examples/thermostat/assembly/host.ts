// Host functions that the SDK does not cover: logging with a level, and reading a variable that
// may be absent (the SDK's `GetEnv` traps then).

// @ts-ignore: decorator
@external("env", "ws_log")
declare function ws_log(level: i32, ptr: usize, size: i32): i32;
// @ts-ignore: decorator
@external("env", "ws_get_env")
declare function ws_get_env(key: usize, keySize: i32, ptrCell: usize, sizeCell: usize): i32;

const WARNING: i32 = 3;

/** Log a line at level warning. */
export function warn(message: string): void {
  const text = String.UTF8.encode(message);
  ws_log(WARNING, changetype<usize>(text), text.byteLength);
}

/** A variable of the project's environment, or `otherwise` when it is not set. */
export function envOr(key: string, otherwise: string): string {
  const name = String.UTF8.encode(key);
  const cells = heap.alloc(8);
  const code = ws_get_env(changetype<usize>(name), name.byteLength, cells, cells + 4);
  const value = code == 0 ? String.UTF8.decodeUnsafe(load<u32>(cells), load<u32>(cells + 4)) : "";
  heap.free(cells);
  return value.length > 0 ? value : otherwise;
}
