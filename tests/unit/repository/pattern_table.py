"""Every regular expression of the product: its input, its use, and its worst input.

`test_patterns.py` fails for a pattern that is missing here, and for one that is not linear. The
worst input is a prefix, a pump that is repeated to 1 MiB, and a suffix: the regular expression
engine gets as far as possible before the match fails. Bytes patterns get the text as Latin-1.
"""

from __future__ import annotations

from dataclasses import dataclass

Attack = tuple[str, str, str]

_EVENT = "POST /srv-applet-mgr/v0/event/"
_SIGN_IN = (
    "a.example wants you to sign in with your Ethereum account:\n0x" + "0" * 40 + "\n\n"
    "hello\n\nURI: a\nVersion: 1\nChain ID: 1\nNonce: abcdefgh\nIssued At: 2026-01-01T00:00:00Z"
)


@dataclass(frozen=True)
class Entry:
    """A pattern's row. `sees`: the source of the input, and its limit of length if an earlier check
    has one."""

    sees: str
    methods: tuple[str, ...]
    worst: tuple[Attack, ...]


def _full(sees: str, *worst: Attack) -> Entry:
    return Entry(sees, ("fullmatch",), worst)


def _match(sees: str, *worst: Attack) -> Entry:
    return Entry(sees, ("match",), worst)


_HEAD = "a request head from anybody, 16 KiB"
_JSON = "a member of a request body of an account, 1 MiB"
_RPC = "the answer of a chain's endpoint"
_SQL = "a statement of an applet, 1 MiB"
_OWN = "text of this program"

TABLE: dict[str, Entry] = {
    # ---- HTTP
    "fieldbrook.gateway.http.request_head:_LINE": _full(
        "the request line of anybody, 16 KiB",
        (_EVENT, "a", " HTTP/1.1"),
        (_EVENT + "a?", "!", "\x01"),
        (_EVENT + "a", "?", " HTTP/1.2"),
    ),
    "fieldbrook.gateway.http.request_head:_FIELDS": _full(
        _HEAD,
        ("X:", " ", "\x01\r\n\r\n"),
        ("Host: a", " ", "b\r\n\r\n"),
        ("X: ", "a", "\n"),
        ("", "a", "\r\n\r\n"),
        ("", "a:\r\n", "\x01"),
    ),
    "fieldbrook.gateway.http.request_head:_RELEVANT": Entry(
        _HEAD,
        ("findall",),
        (
            ("Host:", " ", "b\r\n\r\n"),
            ("Host: a", " \t", "b\n"),
            ("", "host:\r\n", "\x01"),
            ("", "host: \n", "\x01"),
            ("", "content-length", ":\r\n"),
        ),
    ),
    "fieldbrook.gateway.http.request_head:_HOST": _full(
        "the header `Host` of anybody", ("", "a:", "@")
    ),
    "fieldbrook.gateway.http.request_head:_LENGTH": _full(
        "the header `Content-Length` of anybody", ("", "1", "a")
    ),
    "fieldbrook.gateway.http.fast_path:_UNSAFE": Entry(
        "an event's id of anybody, 128 characters", ("sub",), (("", "\n", ""), ("", "a", "\n"))
    ),
    "fieldbrook.gateway.http.tornado.request_stream:_HEAD": Entry(
        "what anybody sends before an empty line, up to 64 KiB at a time",
        ("search",),
        (("", "\r", ""), ("", "\r\n\r", ""), ("", "\na", "\n")),
    ),
    "fieldbrook.gateway.request_target:_AUTHORITY": _full(
        "the host of an absolute request target, 16 KiB", ("", "%a:", "@")
    ),
    "fieldbrook.gateway.request_target:_SLASHES": Entry(
        "a request's path, 16 KiB", ("sub",), (("", "/", "a"), ("", "//a", ""))
    ),
    "fieldbrook.gateway.management.responses:_UNSAFE_IN_FILENAMES": Entry(
        "the file name of an upload", ("sub",), (("", "/", ""),)
    ),
    # ---- events
    "fieldbrook.gateway.channel:_PREFIXED": _full(
        "the first level of an MQTT topic, or the project in a path",
        ("aid_", "1", "_"),
        ("aid_1_", "\n", ""),
        ("aid_1", "_", ""),
    ),
    "fieldbrook.gateway.events.message:_LINE_BREAKS": Entry(
        "the payload of an event, 1 MiB", ("sub",), (("", "\r\n", ""), ("", "a", "\n"))
    ),
    "fieldbrook.gateway.events.message:_ALPHABET": _match(
        "the payload of an event, 1 MiB", ("", "a", "="), ("", "=", ""), ("", "a", "!")
    ),
    "fieldbrook.gateway.mqtt.event_topics:_ACK_KEY": _full(
        "a publisher's key, as an account named it", ("", "a", "#"), ("push", "/", "")
    ),
    "fieldbrook.gateway.mqtt.old_broker.nats_wire:_STATUS": _match(
        "headers of the old broker", ("NATS/1.0 ", "1", "a"), ("NATS/1.0 1 ", "a", "\r")
    ),
    "fieldbrook.security.access_keys:_CONTENT": _full(
        "a bearer token of anybody, decoded", ("1_1_", "!", ""), ("", "1", "_"), ("1_", "1", "_")
    ),
    "fieldbrook.security.access_keys:_BASE64URL": _full(
        "a bearer token of anybody", ("", "a", "=")
    ),
    "fieldbrook.security.operator_keys:_ECDSA_HEX": _full(_JSON, ("0x", "0", "g")),
    "fieldbrook.security.operator_keys:_ED25519_HEX": _full(_JSON, ("0x", "0", "g")),
    "fieldbrook.security.operator_keys:_ED25519_BASE58": _full(_JSON, ("", "1", "0")),
    "fieldbrook.gateway.management.sign_in.wallet:_MESSAGE": _full(
        "the message of a sign-in of anybody, 1 MiB",
        ("", "a", "://"),
        ("a://", "a", " wants you to sign in with your Ethereum account:\n"),
        (_SIGN_IN.partition("hello")[0], "a", "\n\nURI: a\n"),
        (_SIGN_IN.partition("hello")[0], "a\n", "\n\n"),
        (_SIGN_IN.partition("a\nVersion")[0], "a", "\nVersion: 1"),
        (_SIGN_IN.partition("1\nChain")[0], "1", "\nChain"),
        (_SIGN_IN + "\nRequest ID: ", "a", "\n\n"),
        (_SIGN_IN + "\nRequest ID: \nResources:", "\n- a", "\n\n"),
        (_SIGN_IN + "\nResources:\n- ", "a", "\n- \n"),
        (_SIGN_IN[:-1] + ".", "1", "Z"),
    ),
    "fieldbrook.gateway.management.sign_in.wallet:_SIGNATURE": _full(
        "the signature of a sign-in of anybody, 1 MiB", ("0x", "0", "0g")
    ),
    "fieldbrook.gateway.management.sign_in.wallet:_NONCE": _full(
        "the nonce of a sign-in, 128", ("", "0", "g")
    ),
    "fieldbrook.gateway.management.routes.accounts.accounts:_WALLET": _full(
        _JSON, ("0x", "0", "g")
    ),
    # ---- management
    "fieldbrook.core.cluster.membership:_NAME": _full(
        "the name of a host that joins a cluster, 256 KiB",
        ("a", "-", "-"),
        ("a", "a", "_"),
    ),
    "fieldbrook.core.durations:_PART": Entry(
        "a duration of an account that `_WHOLE` has let pass", ("findall",), (("", "1.1h", "1"),)
    ),
    "fieldbrook.core.durations:_WHOLE": _match(
        "a duration of an account, 64 characters",
        ("", "1h", "1"),
        ("", "1.1ms", "1"),
        ("", "1", "h"),
        ("", ".1m", "s"),
    ),
    "fieldbrook.gateway.management.routes.projects.configurations.database:_NAME": _match(
        _JSON, ("a", "a", "-")
    ),
    "fieldbrook.gateway.management.routes.chain.contract_abis:_NAME": _match(
        _JSON, ("a", ".", "/")
    ),
    "fieldbrook.gateway.management.routes.chain.contract_events:_NAME": _match(
        _JSON, ("a", "$", "-")
    ),
    "fieldbrook.gateway.management.routes.chain.contract_events:_TYPE": _match(
        "a type of a contract's ABI of an account",
        ("uint256", "[1]", "x"),
        ("uint256", "[]", "["),
        ("bytes", "1", ""),
    ),
    "fieldbrook.gateway.management.routes.chain.contract_events:_TOKEN": _match(
        "an event's signature of an account, 16 KiB", ("", " ", "-"), ("[", "1", "("), ("", "a", "")
    ),
    "fieldbrook.gateway.management.routes.chain.monitors:_ADDRESS": _match(_JSON, ("0x", "0", "g")),
    "fieldbrook.gateway.management.routes.chain.monitors:_HASH": _match(_JSON, ("0x", "0", "g")),
    "fieldbrook.gateway.management.routes.projects.projects:_NAME": _match(_JSON, ("", "a", "-")),
    "fieldbrook.gateway.http.site.first_module:_IMPORT": Entry(
        _OWN + ": the modules of the dashboard, 8 MiB",
        ("findall", "sub"),
        (
            ("import { ", "a, ", "}"),
            ("import * as ", "a", ""),
            ("import './", "a", ""),
            ("", "\n", ""),
        ),
    ),
    "fieldbrook.gateway.http.site.first_module:_EXPORT": Entry(
        _OWN + ": the modules of the dashboard, 8 MiB",
        ("findall", "sub"),
        (("export const ", "a", ""), ("", "export\n", "")),
    ),
    "fieldbrook.gateway.http.site.dashboard:_SCRIPT": Entry(
        _OWN + ": the page of the dashboard, 8 MiB",
        ("sub",),
        (('<script src="/ui/', "a", ""), ("", '<script src="/ui/', "")),
    ),
    "fieldbrook.gateway.http.site.dashboard:_SHEET": Entry(
        _OWN + ": the page of the dashboard, 8 MiB",
        ("sub",),
        (('<link rel="stylesheet" href="/ui/', "a", ""), ("", '<link rel="stylesheet" ', "")),
    ),
    "fieldbrook.gateway.http.site.first_module:_EXPORTS": Entry(
        _OWN + ": the libraries of the dashboard, 8 MiB",
        ("search", "sub"),
        (("export{", "a", ""), ("", "export{", ""), ("export{a}", " ", "x")),
    ),
    "fieldbrook.gateway.http.site.first_module:_LATER": Entry(
        _OWN + ": the modules of the dashboard, 8 MiB",
        ("finditer", "sub"),
        (("import('.", "a", ""), ("", "import('.", ""), ("", "import(`./", "")),
    ),
    "fieldbrook.gateway.http.site.first_module:_UNKNOWN": Entry(
        _OWN + ": the modules of the dashboard, 8 MiB",
        ("search",),
        (("", "import('.", ""), ("", "\n", ""), ("", "{import('", "")),
    ),
    "fieldbrook.gateway.management.framework.generations:_PARAMETER": Entry(
        _OWN + ": the patterns of routes", ("sub",), (("", "{", ""), ("{", "a", ""))
    ),
    "fieldbrook.gateway.management.openapi.document:_PARAMETER": Entry(
        _OWN + ": the patterns of routes", ("findall", "sub"), (("", "{", ""), ("", "{a", ""))
    ),
    # ---- chains
    "fieldbrook.chain.transactions.requests:_HASH": _full("a hash of an applet", ("0x", "0", "g")),
    "fieldbrook.chain.rpc.refusals:_POOL_IS_FULL": Entry(
        _RPC + ": the text of an error, 4,096 characters",
        ("search",),
        (("", "tx ", ""), ("", "transaction ", ""), ("", "mem", "")),
    ),
    "fieldbrook.chain.rpc.refusals:_KNOWN": Entry(
        _RPC + ": the text of an error, 4,096 characters",
        ("search",),
        (("", "already ", ""), ("", "already exists in the ", ""), ("", "already in the mem", "")),
    ),
    "fieldbrook.chain.rpc.refusals:_TOO_FAST": Entry(
        _RPC + ": the text of an error, 4,096 characters",
        ("search",),
        (("", "rate", "."), ("", "too many ", ""), ("", "request ", "")),
    ),
    "fieldbrook.chain.rpc.refusals:_UNKNOWN_BLOCK": Entry(
        _RPC + ": the text of an error, 4,096 characters",
        ("search",),
        (("", "block ", ""), ("", "unknown ", ""), ("", "beyond the ", "")),
    ),
    "fieldbrook.chain.rpc.refusals:_VERDICT": Entry(
        _RPC + ": the text of an error, 4,096 characters",
        ("search",),
        (("", "exceeds the ", ""), ("", "stack under", ""), ("", "invalid ", "")),
    ),
    "fieldbrook.chain.blocks.ranges:_BLOCKS": Entry(
        _RPC + ": the text of an error, 4,096 characters",
        ("search",),
        (("", "[0x1", ""), ("[", "1", ""), ("", "range 1,", ""), ("", "[1 ", "")),
    ),
    "fieldbrook.chain.blocks.ranges:_NUMBER": Entry(
        _RPC + ": the text of an error, 4,096 characters",
        ("finditer",),
        (("", "1", ""), ("", "1,111", ""), ("", "1,", ""), ("", "1k", "")),
    ),
    "fieldbrook.chain.rpc.answers:_HEX": _match(_RPC, ("0x", "0", "g")),
    "fieldbrook.chain.rpc.retry_after:_DATES[0]": _full(_RPC + ": a header", ("Mon, ", "0", " ")),
    "fieldbrook.chain.rpc.retry_after:_DATES[1]": _full(_RPC + ": a header", ("", "a", ", ")),
    "fieldbrook.chain.rpc.retry_after:_DATES[2]": _full(
        _RPC + ": a header", ("Mon Jan ", " ", "1")
    ),
    "fieldbrook.chain.transaction:_ADDRESS": _match("an address of an applet", ("0x", "0", "g")),
    "fieldbrook.chain.transaction:_DECIMAL": _match("an amount of an applet", ("", "1", "a")),
    "fieldbrook.chain.transaction:_HEX": _match(
        "data of an applet's transaction", ("0x", "0", "g"), ("0x", "00", "0")
    ),
    "fieldbrook.chain.rpc.refusals:_PERMANENT": Entry(
        _RPC + ": the text of an error, 4,096 characters",
        ("search",),
        (
            ("", "exceeds the ", ""),
            ("", "gas limit is ", ""),
            ("", "invalid chain ", ""),
            ("", "transaction size ", ""),
        ),
    ),
    # ---- applets and their SQL
    "fieldbrook.storage.sql.sqlite.statements:_TOKEN": Entry(
        _SQL,
        ("finditer",),
        (
            ("'", "''", ""),
            ("", "[", ""),
            ("", "`", ""),
            ("", "'a", ""),
            ("", '"', ""),
            ("", "/*", ""),
            ("", "*/", ""),
            ("", "--", ""),
            ("", " ", "\x00"),
            ("", "$1", "$"),
            ("", "$a$b$", ""),
            ("", ":a", ":"),
            ("a", "$", ""),
            ("", "?1", ""),
        ),
    ),
    "fieldbrook.storage.sql.postgres.statements:_TOKEN": Entry(
        _SQL,
        ("finditer",),
        (
            ("'", "''", ""),
            ("e'", "''", ""),
            ("", "e'\\'", ""),
            ("", "e'''", ""),
            ("", '"', ""),
            ("", "u&'", ""),
            ("$$", "$", "a"),
            ("", "$a$ $b$ ", ""),
            ("".join(f"$t{number}$ " for number in range(60_000)), "a", ""),
            ("", "/*", ""),
            ("", "/*/", ""),
            ("", "--", ""),
            ("$", "a", ""),
            ("", "$1", "$"),
            ("", "?1", ""),
        ),
    ),
    "fieldbrook.storage.sql.postgres.namespace:_NAMESPACE": _full(
        "names of schemas in the PostgreSQL server", ("fieldbrook_", "0", "_")
    ),
    "fieldbrook.storage.sql.sqlite.database:_STORED_TIME": _full(
        "a value of an applet's table", ("2026-01-01T00:00:00.", "0", "Z")
    ),
    "fieldbrook.storage.sql.schema:_NAME": _full(_JSON, ("a", "a", "-")),
    "fieldbrook.storage.sql.schema:_DEFAULTS[INTEGER]": _full(_JSON, ("+", "1", "a")),
    "fieldbrook.storage.sql.schema:_DEFAULTS[REAL]": _full(_JSON, ("1.", "1", "e")),
    "fieldbrook.storage.sql.schema:_DEFAULTS[DECIMAL TEXT]": _full(_JSON, ("1.", "1", "e")),
    "fieldbrook.storage.sql.schema:_DEFAULTS[BOOLEAN]": _full(_JSON, ("", "true", "")),
    "fieldbrook.storage.sql.schema:_DEFAULTS[TIMESTAMPTZ]": _full(_JSON, ("-", "1", "a")),
    "fieldbrook.wasm.engine.compile:_NUMBERED": Entry(
        "what the compiler says of a module", ("split",), ((" ", "1", ":"), ("", " 1", ":"))
    ),
    "fieldbrook.wasm.host.mqtt:_UNCARRIED": Entry(
        "a topic of an applet, 64 KiB", ("search",), (("", "a", " "),)
    ),
    "fieldbrook.core.errors.base:_BEFORE_A_WORD": Entry(
        _OWN + ": the names of errors", ("sub",), (("", "aA", ""), ("", "a", "A"))
    ),
    # ---- hosts, recorded chains, damaged folders
    "fieldbrook.core.host_port:_HOST": _full("the Host of a request head, 16 KiB", ("", "a", "!")),
    "fieldbrook.core.host_port:_PORT": _full("the Host of a request head, 16 KiB", ("", "1", "a")),
    "fieldbrook.workbench.chain_file:_HASH": _match(
        "a file of an applet's author", ("0x", "0", "g")
    ),
    "fieldbrook.storage.backup.verify:_DIGEST": _full("a record of a data folder", ("", "0", "g")),
    # ---- devices and simulated ones
    "fieldbrook.device.event:_ERROR": _match(
        "an answer of the node, 16 MiB",
        ("[]@StatusErr[", "a", "!"),
        ("[]@StatusErr[A][", "1", "a"),
        ("[]@StatusErr[A][1][", "a", ""),
        ("[]@StatusErr[A][1][", "[]@StatusErr[", ""),
    ),
    "fieldbrook.cli.remote.simulation.template:_PLACEHOLDER": Entry(
        "an argument of the command line, 64 KiB",
        ("split",),
        (("", "{{", ""), ("", "{{a", "}"), ("{{", "a", "}")),
    ),
    "fieldbrook.cli.remote.simulation.template:_NUMBER": _match(
        "an argument of the command line, 64 KiB", ("-", "1", "."), ("1.", "1", "a")
    ),
    # ---- the node's own
    "fieldbrook.core.settings.checks:_ADDRESS": _full(
        "a setting of the operator", ("0x", "0", "g")
    ),
    "fieldbrook.core.settings.fields:_WHOLE_NUMBER": _full(
        "a setting of the operator", ("", "1", "a"), ("1", "_1", "_"), ("1.", "0", "1")
    ),
    "fieldbrook.workbench.scaffold:_NAME": _full(
        "an argument of the command line", ("a", "a", "!")
    ),
    "fieldbrook.workbench.scaffold:_NOT_A_LETTER": Entry(_OWN, ("sub",), (("", "-", ""),)),
}
