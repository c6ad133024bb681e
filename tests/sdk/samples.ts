// What the real SDK offers, each function of it in a handler of its own.
import {
  Abort, CallContract, ExecSQL, GetDataByRID, GetDB, GetEnv, GetSQLDB, HTTP, JSON, Log, QuerySQL,
  SendTx, SetDB, SubmitMetrics,
} from "@w3bstream/wasm-sdk";
import { Bytes as Raw } from "@w3bstream/wasm-sdk/assembly/database";
import { Float64, Int32, String as Text } from "@w3bstream/wasm-sdk/assembly/sql";
export { alloc } from "@w3bstream/wasm-sdk";

export function log(rid: i32): i32 {
  Log("received: " + GetDataByRID(rid));
  return 0;
}

export function size(rid: i32): i32 {
  return String.UTF8.byteLength(GetDataByRID(rid));
}

export function keep(rid: i32): i32 {
  SetDB("last", String.UTF8.encode(GetDataByRID(rid)));
  const read = GetDB("last");
  if (read === null) return 1;
  Log(read.byteLength.toString());
  return 0;
}

export function count(rid: i32): i32 {
  const before = GetDB("count");
  const known = before === null ? 0 : Raw.toInt32(before);
  SetDB("count", Raw.fromInt32(known + 1));
  return known + 1;
}

export function missing(rid: i32): i32 {
  return GetDB("nothing here") === null ? 0 : 1;
}

export function json(rid: i32): i32 {
  const value = JSON.parse(GetDataByRID(rid));
  if (!value.isObj) return 1;
  const celsius = (value as JSON.Obj).getNum("celsius");
  if (celsius === null) return 2;
  Log(celsius.toString());
  return 0;
}

export function environment(rid: i32): i32 {
  Log(GetEnv("LIMIT"));
  return 0;
}

export function no_environment(rid: i32): i32 {
  Log(GetEnv("NOT THERE"));
  return 0;
}

export function sql(rid: i32): i32 {
  const length = GetDataByRID(rid).length;
  ExecSQL("INSERT INTO t (n, x, s) VALUES (?, ?, ?);", [
    new Int32(length), new Float64(20), new Text("it's"),
  ]);
  Log(QuerySQL('SELECT n, x, s FROM "t" WHERE n = ?;', [new Int32(length)]));
  Log(GetSQLDB('{"statement":"SELECT s FROM t WHERE n < 0","params":[]}'));
  return 0;
}

export function bad_sql(rid: i32): i32 {
  ExecSQL("INSERT INTO t (n) VALUES (1)", []);
  return ExecSQL("DROP TABLE t", []);
}

export function metrics(rid: i32): i32 {
  return SubmitMetrics('{"bytes":' + String.UTF8.byteLength(GetDataByRID(rid)).toString() + "}");
}

export function metrics_of_payload(rid: i32): i32 {
  return SubmitMetrics(GetDataByRID(rid));
}

export function api(rid: i32): i32 {
  const answer = HTTP.sendTx("iotex-testnet", "default", "0x01", "0", "", "sent");
  Log(HTTP.parseResult(answer));
  return 0;
}

export function transaction(rid: i32): i32 {
  SendTx(4690, "0xb73eE6EB5b1984c78CCcC49eA7Ad773E71d74F51", "0", "0x40c10f19");
  return 0;
}

export function contract(rid: i32): i32 {
  CallContract(4690, "0xb73eE6EB5b1984c78CCcC49eA7Ad773E71d74F51", "0x95d89b41");
  return 0;
}

export function aborts(rid: i32): i32 {
  SetDB("not kept", String.UTF8.encode("x"));
  Abort("reason", "file", 1, 2);
  assert(GetDataByRID(rid).length < 0, "a text cannot be shorter than nothing");
  return 0;
}

export function chance(rid: i32): i32 {
  const drawn = Math.random();
  return drawn >= 0 && drawn < 1 ? 0 : 1;
}
