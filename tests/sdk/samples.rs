//! The host functions as the SDK for Rust declares them, without its crates.

#[link(wasm_import_module = "env")]
extern "C" {
    fn ws_log(level: i32, text: *const u8, size: i32) -> i32;
    fn ws_get_data(rid: i32, data: *const *mut u8, size: *const i32) -> i32;
    fn ws_set_data(rid: i32, data: *const u8, size: i32) -> i32;
    fn ws_get_db(key: *const u8, key_size: i32, value: *const *mut u8, size: *const i32) -> i32;
    fn ws_set_db(key: *const u8, key_size: i32, value: *const u8, size: i32) -> i32;
    fn ws_get_env(key: *const u8, key_size: i32, value: *const *mut u8, size: *const i32) -> i32;
    fn ws_set_sql_db(request: *const u8, size: i32) -> i32;
    fn ws_get_sql_db(request: *const u8, size: i32, rows: *const *mut u8, n: *const i32) -> i32;
    fn ws_send_mqtt_msg(topic: *const u8, n: i32, message: *const u8, size: i32) -> i32;
    fn ws_api_call(request: *const u8, n: i32, answer: *const *mut u8, size: *const i32) -> i32;
    fn ws_send_tx(chain: i32, tx: *const u8, n: i32, hash: *const *mut u8, size: *const i32) -> i32;
}
#[link(wasm_import_module = "stat")]
extern "C" {
    fn ws_submit_metrics(json: *const u8, size: i32) -> i32;
}

#[no_mangle]
pub extern "C" fn alloc(size: i32) -> *mut u8 {
    let mut buffer: Vec<u8> = Vec::with_capacity(size as usize);
    let place = buffer.as_mut_ptr();
    std::mem::forget(buffer);
    place
}

/// What was handed over, as the SDK takes it: a Vec of exactly the size that was asked for.
fn taken(ask: impl FnOnce(*const *mut u8, *const i32) -> i32) -> Result<Vec<u8>, i32> {
    let place: *mut u8 = std::ptr::null_mut();
    let size: i32 = 0;
    match ask(&place, &size) {
        0 => unsafe {
            let place = std::ptr::read_volatile(&place);
            let size = std::ptr::read_volatile(&size) as usize;
            Ok(Vec::from_raw_parts(place, size, size))
        },
        code => Err(code),
    }
}

fn payload(rid: i32) -> Vec<u8> {
    taken(|place, size| unsafe { ws_get_data(rid, place, size) }).unwrap()
}

fn log_text(level: i32, text: &[u8]) -> i32 {
    unsafe { ws_log(level, text.as_ptr(), text.len() as i32) }
}

fn stored(key: &str) -> Result<Vec<u8>, i32> {
    taken(|place, size| unsafe { ws_get_db(key.as_ptr(), key.len() as i32, place, size) })
}

fn store(key: &str, value: &[u8]) -> i32 {
    unsafe { ws_set_db(key.as_ptr(), key.len() as i32, value.as_ptr(), value.len() as i32) }
}

fn ended(result: Result<i32, i32>) -> i32 {
    result.unwrap_or_else(|code| code)
}

#[no_mangle]
pub extern "C" fn log(rid: i32) -> i32 {
    log_text(4, &payload(rid))
}

#[no_mangle]
pub extern "C" fn size(rid: i32) -> i32 {
    payload(rid).len() as i32
}

#[no_mangle]
pub extern "C" fn keep(rid: i32) -> i32 {
    let given = payload(rid);
    store("last", &given);
    if stored("last") == Ok(given) { 0 } else { 1 }
}

#[no_mangle]
pub extern "C" fn count(_: i32) -> i32 {
    let known = stored("count").map_or(0, |v| i32::from_le_bytes([v[0], v[1], v[2], v[3]]));
    store("count", &(known + 1).to_le_bytes());
    known + 1
}

#[no_mangle]
pub extern "C" fn missing(_: i32) -> i32 {
    stored("nothing here").unwrap_err()
}

#[no_mangle]
pub extern "C" fn unknown(rid: i32) -> i32 {
    taken(|place, size| unsafe { ws_get_data(rid + 1, place, size) }).unwrap_err()
}

#[no_mangle]
pub extern "C" fn resource(rid: i32) -> i32 {
    let mut turned = payload(rid);
    turned.reverse();
    unsafe { ws_set_data(rid, turned.as_ptr(), turned.len() as i32) };
    if payload(rid) == turned { 0 } else { 1 }
}

#[no_mangle]
pub extern "C" fn environment(_: i32) -> i32 {
    let key = "LIMIT";
    let found = taken(|p, n| unsafe { ws_get_env(key.as_ptr(), key.len() as i32, p, n) });
    ended(found.map(|value| log_text(4, &value)))
}

#[no_mangle]
pub extern "C" fn no_environment(_: i32) -> i32 {
    let key = "NOT THERE";
    ended(taken(|p, n| unsafe { ws_get_env(key.as_ptr(), key.len() as i32, p, n) }).map(|_| 0))
}

#[no_mangle]
pub extern "C" fn sql(rid: i32) -> i32 {
    let size = payload(rid).len();
    let insert = format!(
        r#"{{"statement":"INSERT INTO t (n, x, s) VALUES (?,?,?)","params":[{{"int64":{}}},{{"float64":20.0}},{{"string":"it's"}}]}}"#,
        size
    );
    let code = unsafe { ws_set_sql_db(insert.as_ptr(), insert.len() as i32) };
    if code != 0 {
        return code;
    }
    let select = r#"{"statement":"SELECT n, x, s FROM t","params":[]}"#;
    let rows = taken(|p, n| unsafe { ws_get_sql_db(select.as_ptr(), select.len() as i32, p, n) });
    ended(rows.map(|rows| log_text(4, &rows)))
}

#[no_mangle]
pub extern "C" fn bad_sql(_: i32) -> i32 {
    let drop = r#"{"statement":"DROP TABLE t","params":[]}"#;
    unsafe { ws_set_sql_db(drop.as_ptr(), drop.len() as i32) }
}

#[no_mangle]
pub extern "C" fn publish(rid: i32) -> i32 {
    let (topic, message) = ("out/readings", payload(rid));
    let size = message.len() as i32;
    unsafe { ws_send_mqtt_msg(topic.as_ptr(), topic.len() as i32, message.as_ptr(), size) }
}

#[no_mangle]
pub extern "C" fn metrics(rid: i32) -> i32 {
    let json = format!("{{\"bytes\":{}}}", payload(rid).len());
    unsafe { ws_submit_metrics(json.as_ptr(), json.len() as i32) }
}

#[no_mangle]
pub extern "C" fn metrics_of_payload(rid: i32) -> i32 {
    let json = payload(rid);
    unsafe { ws_submit_metrics(json.as_ptr(), json.len() as i32) }
}

#[no_mangle]
pub extern "C" fn api(_: i32) -> i32 {
    let request = r#"{"Method":"GET","Url":"/system/hello","Header":{"Eventtype":["hello"]}}"#;
    let answer = taken(|p, n| unsafe { ws_api_call(request.as_ptr(), request.len() as i32, p, n) });
    ended(answer.map(|answer| log_text(4, &answer)))
}

#[no_mangle]
pub extern "C" fn transaction(_: i32) -> i32 {
    let tx = r#"{"to":"0xb73eE6EB5b1984c78CCcC49eA7Ad773E71d74F51","value":"0","data":""}"#;
    ended(taken(|p, n| unsafe { ws_send_tx(4690, tx.as_ptr(), tx.len() as i32, p, n) }).map(|_| 0))
}

#[no_mangle]
pub extern "C" fn aborts(rid: i32) -> i32 {
    store("not kept", b"x");
    log_text(2, b"on the way");
    let given = payload(rid);
    given[given.len()] as i32
}
