//! {{name}}: counts its events under the key `count`, and logs each.
//!
//! No crates: the module needs nothing but the node.

const OK: i32 = 0;
const NOT_FOUND: i32 = 2;

// Levels of log lines.
const ERROR: i32 = 2;
#[allow(dead_code)]
const WARNING: i32 = 3;
const INFO: i32 = 4;
#[allow(dead_code)]
const DEBUG: i32 = 5;

// Pointers are addresses in the applet's memory. Functions that return data call the
// exported `alloc` and write the address and the size of the data into two cells.
#[link(wasm_import_module = "env")]
extern "C" {
    fn ws_log(level: i32, text: *const u8, size: usize) -> i32;
    fn ws_get_data(rid: i32, data: *mut *mut u8, size: *mut usize) -> i32;
    fn ws_get_db(key: *const u8, key_size: usize, value: *mut *mut u8, size: *mut usize) -> i32;
    fn ws_set_db(key: *const u8, key_size: usize, value: *const u8, size: usize) -> i32;
}

/// The node calls this to allocate memory for data; `taken` turns the data into a `Vec`.
#[no_mangle]
pub extern "C" fn alloc(size: usize) -> *mut u8 {
    let mut buffer = vec![0u8; size].into_boxed_slice();
    let place = buffer.as_mut_ptr();
    std::mem::forget(buffer);
    place
}

/// Calls a host function and returns its data or its error code.
fn taken(ask: impl FnOnce(*mut *mut u8, *mut usize) -> i32) -> Result<Vec<u8>, i32> {
    let (mut place, mut size) = (std::ptr::null_mut(), 0);
    match ask(&mut place, &mut size) {
        OK => Ok(unsafe { Vec::from_raw_parts(place, size, size) }),
        code => Err(code),
    }
}

fn payload(rid: i32) -> Vec<u8> {
    taken(|place, size| unsafe { ws_get_data(rid, place, size) })
        .unwrap_or_else(|code| trap("the payload cannot be read", code))
}

/// A value of the applet's key-value store; None if there is none.
fn stored(key: &str) -> Option<Vec<u8>> {
    match taken(|place, size| unsafe { ws_get_db(key.as_ptr(), key.len(), place, size) }) {
        Ok(value) => Some(value),
        Err(NOT_FOUND) => None,
        Err(code) => trap(&format!("{key} cannot be read"), code),
    }
}

fn store(key: &str, value: &[u8]) {
    match unsafe { ws_set_db(key.as_ptr(), key.len(), value.as_ptr(), value.len()) } {
        OK => (),
        code => trap(&format!("{key} cannot be stored"), code),
    }
}

fn log(level: i32, text: &str) {
    unsafe { ws_log(level, text.as_ptr(), text.len()) };
}

/// Ends the run: the node discards its writes, answers -1, and keeps the event as a dead letter.
fn trap(what: &str, code: i32) -> ! {
    log(ERROR, &format!("{what}: code {code}"));
    std::process::abort()
}

/// `Err(code)` gives the device a number of yours, e.g. -2 for a payload that is not understood.
/// What was stored before is kept then.
fn handle(rid: i32) -> Result<(), i32> {
    let payload = payload(rid);
    let known = stored("count").unwrap_or_default();
    let count = 1 + String::from_utf8_lossy(&known).parse::<u64>().unwrap_or(0);
    store("count", count.to_string().as_bytes());
    log(INFO, &format!("count={} bytes={}", count, payload.len()));
    Ok(())
}

/// The handler: called once for each event; `rid` is the event's id.
#[no_mangle]
pub extern "C" fn start(rid: i32) -> i32 {
    match handle(rid) {
        Ok(()) => OK,
        Err(code) => code,
    }
}
