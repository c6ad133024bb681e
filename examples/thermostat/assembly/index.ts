// thermostat: keeps the last and the highest temperature of each device, and warns above a
// limit.
//
//   payload of `start`:  {"device": "kitchen", "temperature": 21.5}
//   payload of `reset`:  {"device": "kitchen"}
//   stored:              last/<device>, max/<device>: decimal text
//   environment:         TEMPERATURE_LIMIT, degrees, 30 when it is not set
//
// Both handlers return 0, or 1 for JSON of another shape. For a payload that is not JSON the
// parser calls `abort`: the node answers -1, logs the reason, and discards the effects of the run.
import { GetDataByRID, GetDB, JSON, Log, SetDB } from "@w3bstream/wasm-sdk";
import { envOr, warn } from "./host";

export { alloc } from "@w3bstream/wasm-sdk";

const OK: i32 = 0;
const WRONG_SHAPE: i32 = 1;
const DEFAULT_LIMIT = "30";

/** Takes one reading. */
export function start(rid: i32): i32 {
  const message = parse(rid);
  const device = deviceOf(message);
  const reading = message == null ? NaN : numberOf(message, "temperature");
  if (device.length == 0 || isNaN(reading)) {
    warn('expected {"device": text, "temperature": number}');
    return WRONG_SHAPE;
  }
  const known = stored("max/" + device);
  const highest = isNaN(known) ? reading : Math.max(known, reading);
  store("last/" + device, reading);
  store("max/" + device, highest);

  const limit = parseFloat(envOr("TEMPERATURE_LIMIT", DEFAULT_LIMIT));
  const line = `${device}: ${reading} degrees, highest ${highest}`;
  if (reading > limit) {
    warn(`${line}, above the limit of ${limit}`);
  } else {
    Log(line);
  }
  return OK;
}

/** Forgets the highest temperature of a device: it becomes the last one. */
export function reset(rid: i32): i32 {
  const device = deviceOf(parse(rid));
  if (device.length == 0) {
    warn('expected {"device": text}');
    return WRONG_SHAPE;
  }
  const last = stored("last/" + device);
  if (isNaN(last)) {
    Log(`${device}: nothing to reset`);
    return OK;
  }
  store("max/" + device, last);
  Log(`${device}: highest reset to ${last}`);
  return OK;
}

function parse(rid: i32): JSON.Obj | null {
  const value = JSON.parse(GetDataByRID(rid));
  return value.isObj ? (value as JSON.Obj) : null;
}

function deviceOf(message: JSON.Obj | null): string {
  if (message == null) return "";
  const name = message.getString("device");
  return name == null ? "" : name.valueOf();
}

function numberOf(message: JSON.Obj, key: string): f64 {
  const value = message.get(key);
  if (value == null) return NaN;
  if (value.isFloat) return (value as JSON.Float).valueOf();
  if (value.isInteger) return <f64>(value as JSON.Integer).valueOf();
  return NaN;
}

function stored(key: string): f64 {
  const value = GetDB(key);
  return value == null ? NaN : parseFloat(String.UTF8.decode(value));
}

function store(key: string, value: f64): void {
  SetDB(key, String.UTF8.encode(value.toString()));
}
