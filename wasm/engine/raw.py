"""Bindings to functions of wasmtime's C library that its Python package lacks or wraps slowly.

These functions may change between releases of the Python package, which does not document them.
`missing` lists every function and layout that is not as expected; `engine.raw_available` checks it.

Functions that run guest code release the interpreter's lock, so that the ticker can end a
loop. The others keep it, which is faster. The caller owns every returned error and trap.

Source: wasmtime's C API headers; layouts are compared with the package's declarations.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from ctypes import c_bool, c_char_p, c_double, c_int, c_size_t, c_uint32, c_uint64
from ctypes import c_void_p as ptr
from typing import Any

from wasmtime import _ffi

__all__ = ["c_double", "c_int", "c_uint32", "c_uint64", "ptr"]

missing: list[str] = []

Function = Callable[..., Any]
CALLBACK = ctypes.CFUNCTYPE(ptr, ptr, ptr, ptr, c_size_t)
SLOT_BYTES = 16  # size of one argument or result of an unchecked call
SLOT_WORDS = SLOT_BYTES // 4
EXTERN_FUNC, EXTERN_MEMORY = 0, 3
TRAP_INTERRUPT = 10


def _libraries() -> tuple[Any, Any]:
    filename = str(_ffi.filename)
    return ctypes.PyDLL(filename), ctypes.CDLL(filename)


def _absent(*_arguments: object) -> Any:
    raise RuntimeError(f"wasmtime's library lacks {', '.join(missing)}")


_locked: Any = None
_unlocked: Any = None
try:
    _locked, _unlocked = _libraries()
except (AttributeError, OSError) as error:
    missing.append(f"the library itself ({error})")


def _function(library: Any, name: str, result: Any, *arguments: Any) -> Function:
    """Bind a symbol with our own prototype, because the package's wrappers cost microseconds."""
    try:
        function: Any = type(library[name])((name, library))
    except (AttributeError, TypeError):
        missing.append(name)
        return _absent
    function.restype, function.argtypes = result, arguments
    return function  # type: ignore[no-any-return]


def _expect(what: str, actual: Callable[[], int], expected: int) -> None:
    try:
        found = actual()
    except (AttributeError, TypeError) as error:
        missing.append(f"{what} ({error})")
        return
    if found != expected:
        missing.append(f"{what} of {expected} (it is {found})")


_name = (c_char_p, c_size_t)

store_new = _function(_locked, "wasmtime_store_new", ptr, ptr, ptr, ptr)
store_context = _function(_locked, "wasmtime_store_context", ptr, ptr)
store_delete = _function(_locked, "wasmtime_store_delete", None, ptr)
wasi_config_new = _function(_locked, "wasi_config_new", ptr)
set_wasi = _function(_locked, "wasmtime_context_set_wasi", ptr, ptr, ptr)
set_epoch_deadline = _function(_locked, "wasmtime_context_set_epoch_deadline", None, ptr, c_uint64)
instantiate = _function(_unlocked, "wasmtime_instance_pre_instantiate", ptr, ptr, ptr, ptr, ptr)
instance_new = _function(_unlocked, "wasmtime_instance_new", ptr, ptr, ptr, ptr, c_size_t, ptr, ptr)
linker_get = _function(_locked, "wasmtime_linker_get", c_bool, ptr, ptr, *_name, *_name, ptr)
export_get = _function(_locked, "wasmtime_instance_export_get", c_bool, ptr, ptr, *_name, ptr)
caller_export_get = _function(_locked, "wasmtime_caller_export_get", c_bool, ptr, *_name, ptr)
call_unchecked = _function(
    _unlocked, "wasmtime_func_call_unchecked", ptr, ptr, ptr, ptr, c_size_t, ptr
)
memory_data = _function(_locked, "wasmtime_memory_data", ptr, ptr, ptr)
memory_data_size = _function(_locked, "wasmtime_memory_data_size", c_size_t, ptr, ptr)
linker_define = _function(
    _locked,
    "wasmtime_linker_define_func_unchecked",
    *(ptr, ptr, *_name, *_name, ptr, ptr, ptr, ptr),
)
trap_new = _function(_locked, "wasmtime_trap_new", ptr, c_char_p, c_size_t)
trap_delete = _function(_locked, "wasm_trap_delete", None, ptr)
trap_code = _function(_locked, "wasmtime_trap_code", c_bool, ptr, ptr)
trap_message = _function(_locked, "wasm_trap_message", None, ptr, ptr)
error_message = _function(_locked, "wasmtime_error_message", None, ptr, ptr)
error_delete = _function(_locked, "wasmtime_error_delete", None, ptr)
error_exit_status = _function(_locked, "wasmtime_error_exit_status", c_bool, ptr, ptr)
bytes_delete = _function(_locked, "wasm_byte_vec_delete", None, ptr)

_POOLING = "wasmtime_pooling_allocation_"
pooling_new = _function(_locked, f"{_POOLING}config_new", ptr)
pooling_delete = _function(_locked, f"{_POOLING}config_delete", None, ptr)
pooling_use = _function(_locked, f"{_POOLING}strategy_set", None, ptr, ptr)
_POOLING_SETTINGS = {
    "total_core_instances": c_uint32,
    "total_memories": c_uint32,
    "total_tables": c_uint32,
    "max_tables_per_module": c_uint32,
    "table_elements": c_size_t,
    "max_memory_size": c_size_t,
    "linear_memory_keep_resident": c_size_t,
    "table_keep_resident": c_size_t,
    "max_unused_warm_slots": c_uint32,
}
_pooling_setters = {
    name: _function(_locked, f"{_POOLING}config_{name}_set", None, ptr, kind)
    for name, kind in _POOLING_SETTINGS.items()
}

_expect("a slot", lambda: ctypes.sizeof(_ffi.wasmtime_val_raw_t), SLOT_BYTES)
_expect("an instance", lambda: ctypes.sizeof(_ffi.wasmtime_instance_t), 16)
_expect("an extern", lambda: ctypes.sizeof(_ffi.wasmtime_extern_t), 32)
_expect("an extern's value at", lambda: _ffi.wasmtime_extern_t.of.offset, 8)
_expect("the kind of a function", lambda: _ffi.WASMTIME_EXTERN_FUNC.value, EXTERN_FUNC)
_expect("the kind of a memory", lambda: _ffi.WASMTIME_EXTERN_MEMORY.value, EXTERN_MEMORY)


def address(pointer: object) -> int:
    """Return the address in a pointer of one of the package's types."""
    return ctypes.cast(pointer, ptr).value or 0  # type: ignore[arg-type]


def use_pooling(config: object, settings: dict[str, int]) -> None:
    """Make a `wasmtime.Config` allocate instances from a pool with these settings."""
    pool = pooling_new()
    for name, value in settings.items():
        _pooling_setters[name](pool, value)
    pooling_use(address(config.ptr()), pool)  # type: ignore[attr-defined]
    pooling_delete(pool)


def _take_bytes(read: Function, source: int) -> str:
    vector = (c_uint64 * 2)()
    at = ctypes.addressof(vector)
    read(source, at)
    text = ctypes.string_at(vector[1], vector[0]).rstrip(b"\0").decode("utf-8", "replace")
    bytes_delete(at)
    return text


def take_error(error: int) -> tuple[int | None, str]:
    """Release an error; return its exit status (None if it is no exit) and its message."""
    status = c_int(0)
    is_exit = error_exit_status(error, ctypes.addressof(status))
    message = "" if is_exit else _take_bytes(error_message, error)
    error_delete(error)
    return (status.value if is_exit else None), message


def take_trap(trap: int) -> tuple[bool, str]:
    """Release a trap; return whether the deadline caused it, and its message."""
    code = ctypes.c_uint8(0)
    coded = trap_code(trap, ctypes.addressof(code))
    message = _take_bytes(trap_message, trap)
    trap_delete(trap)
    return bool(coded) and code.value == TRAP_INTERRUPT, message
