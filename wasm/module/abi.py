"""The contract between applets and their host: numbers, names and signatures.

Source: ABI document, sections 1 to 3 (the public W3bstream SDKs and host).
"""

from __future__ import annotations

import msgspec

# Result codes of host functions. The SDKs only test whether a code is zero.
OK = 0
HANDLER_NOT_EXPORTED = 1
RESOURCE_NOT_FOUND = 2
IMPORT_NOT_FOUND = 3
IMPORT_CALL_FAILED = 4
COPY_TO_GUEST_FAILED = 5
COPY_FROM_GUEST_FAILED = 6
HOST_INTERNAL = 7
ENV_KEY_NOT_FOUND = 8
NO_DATABASE = 9
ILLEGAL_PARAMETER = 10
FAILED = -1
# Codes of our own functions (module `fieldbrook`).
SIGNATURE_INVALID = 11
SIGNATURE_MALFORMED = 12
KEY_MALFORMED = 13

LOG_PANIC, LOG_FATAL, LOG_ERROR, LOG_WARNING, LOG_INFO, LOG_DEBUG, LOG_TRACE = range(7)
LOG_UNKNOWN = 7  # any other number that an applet sends
LEVEL_NAMES = ("panic", "fatal", "error", "warning", "info", "debug", "trace", "unknown")

SOURCE_GUEST = "wasmCode"  # records that the applet writes with ws_log
SOURCE_HOST = "wasmExportFunc"  # records of host functions, e.g. why a call failed
SOURCE_TASK = "vmTask"  # records of the node about a run

MESSAGE_LIMIT = 1024  # characters of a log record; the rest is cut off

NOT_EXPORTED = "func not imported"  # the reason if the module does not export the handler

HANDLER_PARAMS, HANDLER_RESULT = "i", "i"
MEMORY, ALLOC, INITIALIZE, START = "memory", "alloc", "_initialize", "_start"
WASI_MODULE = "wasi_snapshot_preview1"
OWN_MODULE = "fieldbrook"  # functions that no other host has


def level_name(level: int) -> str:
    """Return the name of a log level; any number outside 0 to 6 is `unknown`."""
    return LEVEL_NAMES[level] if 0 <= level < LOG_UNKNOWN else LEVEL_NAMES[LOG_UNKNOWN]


class Signature(msgspec.Struct, frozen=True):
    """One host function as applets import it.

    `params` and `result` have one letter per value: `i` = i32, `l` = i64, `d` = f64. `result`
    is empty for a function without result. `failure` is the code that the guest gets when its
    arguments cannot be used, e.g. a pointer outside its memory.
    """

    module: str
    name: str
    params: str
    result: str
    failure: int = FAILED

    @property
    def label(self) -> str:
        """Module and name, e.g. `env.ws_log`."""
        return f"{self.module}.{self.name}"


WS_LOG = Signature("env", "ws_log", "iii", "i", FAILED)
WS_GET_DATA = Signature("env", "ws_get_data", "iii", "i", COPY_TO_GUEST_FAILED)
WS_SET_DATA = Signature("env", "ws_set_data", "iii", "i", COPY_TO_GUEST_FAILED)
WS_GET_EVENT_TYPE = Signature("env", "ws_get_event_type", "iii", "i", COPY_TO_GUEST_FAILED)
WS_GET_DB = Signature("env", "ws_get_db", "iiii", "i", RESOURCE_NOT_FOUND)
WS_SET_DB = Signature("env", "ws_set_db", "iiii", "i", RESOURCE_NOT_FOUND)
WS_GET_ENV = Signature("env", "ws_get_env", "iiii", "i", COPY_TO_GUEST_FAILED)
WS_SET_SQL_DB = Signature("env", "ws_set_sql_db", "ii", "i", RESOURCE_NOT_FOUND)
WS_GET_SQL_DB = Signature("env", "ws_get_sql_db", "iiii", "i", RESOURCE_NOT_FOUND)
WS_SEND_MQTT_MSG = Signature("env", "ws_send_mqtt_msg", "iiii", "i", FAILED)
WS_SEND_MQTT = Signature("env", "ws_send_mqtt", "iiii", "i", FAILED)  # its older name
WS_GET_MQTT_MSG = Signature("env", "ws_get_mqtt_msg", "iiiii", "i", COPY_TO_GUEST_FAILED)
WS_API_CALL = Signature("env", "ws_api_call", "iiii", "i", COPY_FROM_GUEST_FAILED)
WS_SEND_TX = Signature("env", "ws_send_tx", "iiiii", "i", FAILED)
WS_SEND_TX_WITH_OPERATOR = Signature("env", "ws_send_tx_with_operator", "iiiii", "i", FAILED)
WS_CALL_CONTRACT = Signature("env", "ws_call_contract", "iiiii", "i", FAILED)
# Variants from before 2023: they have no parameter for the chain, and sending returns no
# transaction hash.
WS_SEND_TX_ONE_CHAIN = Signature("env", "ws_send_tx", "ii", "i", FAILED)
WS_CALL_CONTRACT_ONE_CHAIN = Signature("env", "ws_call_contract", "iiii", "i", FAILED)
WS_SUBMIT_METRICS = Signature("stat", "ws_submit_metrics", "ii", "i", FAILED)
WS_COUNTER_INC = Signature("stat", "ws_counter_inc", "ii", "i", FAILED)
WS_COUNTER_ADD = Signature("stat", "ws_counter_add", "iid", "i", FAILED)
WS_GAUGE_SET = Signature("stat", "ws_gauge_set", "iid", "i", FAILED)
ABORT = Signature("env", "abort", "iiii", "")
TRACE = Signature("env", "trace", "iiddddd", "")
SEED = Signature("env", "seed", "", "d")
# It replaces wasmtime's function, which sleeps for as long as the guest asks, even past the
# deadline.
POLL_ONEOFF = Signature(WASI_MODULE, "poll_oneoff", "iiii", "i", 21)  # EFAULT
# They replace wasmtime's functions only in seeded hosts; a node uses wasmtime's.
RANDOM_GET = Signature(WASI_MODULE, "random_get", "ii", "i", 21)
CLOCK_TIME_GET = Signature(WASI_MODULE, "clock_time_get", "ili", "i", 21)
VERIFY_SECP256K1 = Signature(OWN_MODULE, "verify_secp256k1", "iiiiii", "i", COPY_FROM_GUEST_FAILED)
VERIFY_P256 = Signature(OWN_MODULE, "verify_p256", "iiiiii", "i", COPY_FROM_GUEST_FAILED)
VERIFY_ED25519 = Signature(OWN_MODULE, "verify_ed25519", "iiiiii", "i", COPY_FROM_GUEST_FAILED)
RECOVER_SECP256K1 = Signature(
    OWN_MODULE, "recover_secp256k1", "iiiiii", "i", COPY_FROM_GUEST_FAILED
)
RECOVER_ADDRESS = Signature(OWN_MODULE, "recover_address", "iiiiii", "i", COPY_FROM_GUEST_FAILED)
SHA256 = Signature(OWN_MODULE, "sha256", "iiii", "i", COPY_FROM_GUEST_FAILED)
KECCAK256 = Signature(OWN_MODULE, "keccak256", "iiii", "i", COPY_FROM_GUEST_FAILED)

# A name may occur twice: the second entry is an older variant with another type.
SIGNATURES: tuple[Signature, ...] = (
    WS_LOG,
    WS_GET_DATA,
    WS_SET_DATA,
    WS_GET_EVENT_TYPE,
    WS_GET_DB,
    WS_SET_DB,
    WS_GET_ENV,
    WS_SET_SQL_DB,
    WS_GET_SQL_DB,
    WS_SEND_MQTT_MSG,
    WS_SEND_MQTT,
    WS_GET_MQTT_MSG,
    WS_API_CALL,
    WS_SEND_TX,
    WS_SEND_TX_WITH_OPERATOR,
    WS_CALL_CONTRACT,
    WS_SEND_TX_ONE_CHAIN,
    WS_CALL_CONTRACT_ONE_CHAIN,
    WS_SUBMIT_METRICS,
    WS_COUNTER_INC,
    WS_COUNTER_ADD,
    WS_GAUGE_SET,
    ABORT,
    TRACE,
    SEED,
    POLL_ONEOFF,
    VERIFY_SECP256K1,
    VERIFY_P256,
    VERIFY_ED25519,
    RECOVER_SECP256K1,
    RECOVER_ADDRESS,
    SHA256,
    KECCAK256,
)
# Additional functions of a seeded host. Applets import the same names on every host.
SEEDED_SIGNATURES: tuple[Signature, ...] = (RANDOM_GET, CLOCK_TIME_GET)
