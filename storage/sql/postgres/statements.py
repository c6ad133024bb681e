"""Statements for PostgreSQL: translation, and the filter for applets.

An applet's session has a role that owns nothing and may use the project's tables only
(`storage.sql.postgres.setup`). But every role may read the catalogue, which has the names of
other projects' tables, and may change the session's settings, such as its time limit. No
privilege can forbid that. So a filter refuses statements with names of the catalogue, or with
functions that are not known to be harmless. The filter does not parse SQL. It only has to split a
text into the same tokens as the server does, and refuses a statement when that is not certain.

No library replaces the filter. psycopg does not parse statements. sqlglot splits some of them in
another way than the server: it reads a name of the form `U&"..."` as an operator and a name.
pglast, which wraps the server's own parser, has the GPL as its licence.

Source: PostgreSQL 15 manual, 4.1 (lexical structure); ABI document, 3.1.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

from fieldbrook.core.errors import StatementError
from fieldbrook.storage.sql.schema import PRIVATE_PREFIX
from fieldbrook.storage.sql.statements import (
    Token,
    bare_name,
    check_command,
    join_schemas,
    replace_placeholders,
)

_CACHED, _CACHED_LENGTH = 256, 4_096  # translated statements, and the characters of one

# White space and letters are those of PostgreSQL: every byte above 127 is a letter.
_TOKEN = re.compile(
    r"""
      (?P<escaped>[eE]'(?:[^'\\]|''|\\.)*+')
    | (?P<unicode>[uU]&['"])
    | (?P<literal>[bBxXnN]?'(?:[^']|'')*+')
    | (?P<quoted>"(?:[^"]|"")*+")
    | (?P<dollar>\$((?:[A-Za-z_\x80-\U0010ffff][A-Za-z0-9_\x80-\U0010ffff]*+)?)\$.*?\$\6\$)
    | (?P<endless>\$(?:[A-Za-z_\x80-\U0010ffff][A-Za-z0-9_\x80-\U0010ffff]*+)?\$.*+)
    | (?P<space>[ \t\n\r\f\v]+|--[^\n\r]*+|/\*.*?(?:\*/|\Z))
    | (?P<number>\$\d+)
    | (?P<mark>\?\d*)
    | (?P<name>[A-Za-z_\x80-\U0010ffff][A-Za-z0-9_$\x80-\U0010ffff]*+)
    | (?P<other>.)
    """,
    re.VERBOSE | re.DOTALL,
)
_UNCERTAIN = {
    "unicode": "names and texts with U&",
    # This token covers the rest of the statement. Otherwise the end of each of many open tags would
    # be searched for in the whole rest, in quadratic time.
    "endless": "a text that does not end",
    "'": "a text that does not end",
    '"': "a name that does not end",
}

_CATALOGUE = ("pg_", PRIVATE_PREFIX, "information_schema")
# Values of these types reveal the names of any project's tables, roles and functions.
_NAMING_NAMES = """regclass regproc regprocedure regoper regoperator regtype regrole regnamespace
    regconfig regdictionary regcollation aclitem"""
_NAMING_TYPES = frozenset(_NAMING_NAMES.split())
# The role that logged in. For readers it is the role of the setting `postgres_dsn`.
_LOGIN_NAMES = frozenset({"session_user", "system_user"})
# Functions that depend only on their arguments, the given rows, the clock and random numbers. The
# names of types are in the list because `numeric(10, 2)` looks like a call.
_HARMLESS_NAMES = """
    length char_length character_length octet_length bit_length lower upper initcap substr
    substring position strpos replace translate trim ltrim rtrim btrim concat concat_ws format
    left right lpad rpad repeat reverse split_part starts_with ascii chr md5 sha224 sha256
    sha384 sha512 encode decode to_hex quote_ident quote_literal quote_nullable overlay
    regexp_count regexp_instr regexp_like regexp_match regexp_matches regexp_replace
    regexp_split_to_array regexp_split_to_table regexp_substr string_to_array
    string_to_table array_to_string unistr to_char to_number to_date to_timestamp normalize
    get_bit set_bit get_byte set_byte bit_count convert_from convert_to
    abs ceil ceiling floor round trunc sign sqrt cbrt exp ln log log10 power pow mod div gcd
    lcm pi random degrees radians sin cos tan cot asin acos atan atan2 sinh cosh tanh asinh
    acosh atanh sind cosd tand factorial min_scale scale trim_scale width_bucket num_nulls
    num_nonnulls
    now age date_part date_trunc date_bin extract make_date make_time make_timestamp
    make_timestamptz make_interval justify_days justify_hours justify_interval
    clock_timestamp statement_timestamp transaction_timestamp timeofday isfinite timezone
    overlaps
    count sum avg min max string_agg array_agg bool_and bool_or every bit_and bit_or bit_xor
    stddev stddev_pop stddev_samp variance var_pop var_samp corr covar_pop covar_samp
    regr_avgx regr_avgy regr_count regr_intercept regr_r2 regr_slope regr_sxx regr_sxy
    regr_syy percentile_cont percentile_disc mode
    row_number rank dense_rank percent_rank cume_dist ntile lag lead first_value last_value
    nth_value grouping
    to_json to_jsonb row_to_json array_to_json json_agg jsonb_agg json_object_agg
    jsonb_object_agg json_build_array jsonb_build_array json_build_object jsonb_build_object
    json_object jsonb_object json_array_length jsonb_array_length json_each jsonb_each
    json_each_text jsonb_each_text json_array_elements jsonb_array_elements
    json_array_elements_text jsonb_array_elements_text json_extract_path jsonb_extract_path
    json_extract_path_text jsonb_extract_path_text json_object_keys jsonb_object_keys
    json_populate_record jsonb_populate_record json_populate_recordset
    jsonb_populate_recordset json_to_record jsonb_to_record json_to_recordset
    jsonb_to_recordset json_strip_nulls jsonb_strip_nulls json_typeof jsonb_typeof
    jsonb_set jsonb_set_lax jsonb_insert jsonb_pretty jsonb_path_exists jsonb_path_match
    jsonb_path_query jsonb_path_query_array jsonb_path_query_first
    unnest array_length array_lower array_upper array_ndims array_dims cardinality
    array_append array_prepend array_cat array_remove array_replace array_position
    array_positions array_fill trim_array generate_series generate_subscripts
    gen_random_uuid
    bigint bit bool boolean bpchar char character date decimal double float float4 float8 int
    int2 int4 int8 integer interval json jsonb numeric real smallint text time timestamp
    timestamptz timetz uuid varbit varchar money
"""
HARMLESS = frozenset(_HARMLESS_NAMES.split())
FUNCTIONS = """SELECT DISTINCT proname, provolatile <> 'i' AND pronargs > 0
    AND pronargs - pronargdefaults <= 1 AND 'internal'::regtype <> ALL (proargtypes)
    FROM pg_proc"""
"""The query for the functions of a server, for `forbidden_functions`. It returns the name of each,
and whether a name after a dot can call the function and it does more than compute."""
# Calls of these are not counted, because long values do not make them slower.
_CHEAP_NAMES = """now date_part date_trunc extract make_date make_time make_timestamp
    make_timestamptz make_interval clock_timestamp statement_timestamp transaction_timestamp
    row_number rank dense_rank percent_rank cume_dist ntile lag lead first_value last_value
    gen_random_uuid random count sum avg min max abs floor ceil ceiling round coalesce nullif
    bigint bool boolean date decimal double float float4 float8 int int2 int4 int8 integer interval
    numeric real smallint text time timestamp timestamptz timetz uuid varchar"""
_CHEAP = frozenset(_CHEAP_NAMES.split())
# The results of these may have up to a gigabyte, which the server keeps until the end of the row.
_LARGE_NAMES = "repeat lpad rpad format replace array_fill bit bpchar char character"
_LARGE = frozenset(_LARGE_NAMES.split())
_CALLS_OF_LARGE = 25
# The server checks its time limit between rows, and not within a row: a statement of 1 MiB could
# divide numbers of 100,000 digits for hours, and could not be ended.
_CALLS_LIMIT, _OPERATORS_LIMIT = 250, 1_000
_SLOW_OPERATORS = frozenset("*/%^|~")
# Words that may change rows at any place of a statement, for example within WITH.
_CHANGING = frozenset({"INSERT", "UPDATE", "DELETE", "MERGE"})


# Words of the language that are not in the server's list of functions.
_XML_NAMES = """xmlconcat xmlelement xmlexists xmlforest xmlparse xmlpi xmlroot xmlserialize
    xmltable xmltext xmlcast xmlquery"""
_XML_FUNCTIONS = frozenset(_XML_NAMES.split())
# Words that may come before the name of a table or column, but not before the name of a type.
_NAMES_BEFORE_COLUMN = """SELECT DISTINCT ALL WHERE AND OR NOT ON HAVING BY SET CASE WHEN THEN ELSE
    IN BETWEEN LIKE ILIKE FROM JOIN INTO UPDATE USING"""
_BEFORE_COLUMN = frozenset(_NAMES_BEFORE_COLUMN.split())
_SIGNS_BEFORE_COLUMN = frozenset("(,=<>+-*/%|")


class Forbidden(NamedTuple):
    """The names of functions that statements may not call.

    Names in `called` are refused before a bracket. Names in `dotted` are also refused after a dot,
    because the server reads `(x).f` as `f(x)` if `x` has no such column. Only few functions are in
    `dotted`: the others depend only on their argument, and columns may have their names (`name`,
    `path`, `host`).
    """

    called: frozenset[str] = frozenset()
    dotted: frozenset[str] = frozenset()


def forbidden_functions(rows: Iterable[Sequence[str | None]]) -> Forbidden:
    """Return the functions that applets may not call, from a server's answer to `FUNCTIONS`."""
    found = [(name or "", dotted == "t") for name, dotted in rows]
    called = frozenset(name for name, _ in found) - HARMLESS
    return Forbidden(called, called & {name for name, dotted in found if dotted})


class Statement(NamedTuple):
    """A statement for PostgreSQL.

    `text` has the placeholders `$1` to `$params`. `command` is the first word in upper case.
    `changes` is set when any word of the statement may change rows, whatever the command is.
    """

    text: str
    params: int
    command: str
    changes: bool


def translate(statement: str, schemas: frozenset[str], forbidden: Forbidden) -> Statement:
    """Translate an applet's placeholders and table names for PostgreSQL, and check the statement.

    Args:
        statement: the statement as it was sent, with `?` or `$1`.
        schemas: the configured schemas; `public.t` becomes `t`, `s.t` the table `"s.t"`.
        forbidden: the functions that applets may not call.

    Raises:
        StatementError: the statement is not allowed for applets, has placeholders of both kinds,
            or cannot be split into tokens with certainty.
    """
    if len(statement) > _CACHED_LENGTH:
        return _translate(statement, schemas, forbidden)
    return _translate_cached(statement, schemas, forbidden)


def _translate(statement: str, schemas: frozenset[str], forbidden: Forbidden) -> Statement:
    if "\0" in statement:
        raise StatementError("the statement contains a NUL character")
    tokens = [(str(m.lastgroup), m.group()) for m in _TOKEN.finditer(statement)]
    check_command(tokens)
    _check_certain(tokens)
    tokens = join_schemas(tokens, schemas)
    words = [token for token in tokens if token[0] != "space"]
    _check_names(words, forbidden)
    _check_xml(words)
    _check_work(words)
    text, order = replace_placeholders(tokens, lambda index: f" ${index + 1} ")
    plain = [text.upper() for kind, text in words if kind == "name"]
    changes = not _CHANGING.isdisjoint(plain)
    return Statement(text, max(order, default=-1) + 1, plain[0] if plain else "", changes)


_translate_cached = lru_cache(_CACHED)(_translate)


def _check_certain(tokens: list[Token]) -> None:
    escaped = False
    for kind, text in tokens:
        fault = _UNCERTAIN.get(kind) or (_UNCERTAIN.get(text) if kind == "other" else None)
        if kind == "space" and text.startswith("/*"):
            if "/*" in text[2:] or not text.endswith("*/") or len(text) < len("/**/"):
                fault = "a comment within a comment, or without an end"
        elif escaped and kind == "literal":  # a part of the E text for the server
            fault = "a text in two parts after E"
        if fault:
            raise StatementError(f"applets may not use {fault}")
        if kind != "space":
            escaped = kind == "escaped"


def _check_work(words: Sequence[Token]) -> None:
    """Refuse statements whose work for a single row may be unlimited.

    Raises:
        StatementError: it has too many functions or operators.
    """
    calls = operators = 0
    for (kind, text), (_, after) in pairwise([*words, ("", "")]):
        if kind == "other":
            operators += text in _SLOW_OPERATORS
        elif after == "(" and kind in ("name", "quoted"):
            name = bare_name((kind, text)).lower()
            if name in HARMLESS:  # it is not a word of the language before a bracket
                calls += _CALLS_OF_LARGE if name in _LARGE else name not in _CHEAP
    for what, count, limit in (
        ("functions", calls, _CALLS_LIMIT),
        ("of the operators * / % ^ | ~", operators, _OPERATORS_LIMIT),
    ):
        if count > limit:
            raise StatementError(f"the statement has {count} {what}, the limit is {limit}")


def _check_xml(words: Sequence[Token]) -> None:
    """Refuse values of the type xml.

    When the server parses such values, it expands their entities without a memory limit and without
    checking the time limit: a kilobyte becomes gigabytes. Columns may be named `xml`.

    Raises:
        StatementError: a word of the statement may make such a value.
    """
    casts = list[bool]()  # for each open bracket, whether it belongs to a CAST
    for place, (kind, text) in enumerate(words):
        before = words[place - 1] if place else ("", "")
        after = words[place + 1] if place + 1 < len(words) else ("", "")
        if text == "(":
            casts.append(before[0] == "name" and before[1].lower() == "cast")
        elif text == ")":
            del casts[-1:]
        name = bare_name((kind, text)).lower()
        if name == "document" and _is_predicate(words, place):
            raise StatementError("applets may not use IS DOCUMENT")
        if name in _XML_FUNCTIONS and after[1] == "(":
            raise StatementError(f"applets may not use function {name[:63]}")
        if name.strip("_") == "xml" and not _is_column(before, after, in_cast=casts[-1:] == [True]):
            raise StatementError("applets may not use the type xml")


def _is_predicate(words: Sequence[Token], place: int) -> bool:
    """Return whether a word follows IS or IS NOT."""
    earlier = [text.upper() for _, text in words[max(0, place - 2) : place]]
    return earlier[-1:] == ["IS"] or earlier == ["IS", "NOT"]


def _is_column(before: Token, after: Token, *, in_cast: bool) -> bool:
    """Return whether `xml` between these words is a column or an alias, and not a type or
    function."""
    if after[0] in ("literal", "escaped", "dollar") or after[1] == "[":
        return False
    word = before[1].upper()
    if before[0] in ("name", "quoted"):
        return word in _BEFORE_COLUMN or (word == "AS" and not in_cast)
    return before[1] in _SIGNS_BEFORE_COLUMN


def _check_names(words: Sequence[Token], forbidden: Forbidden) -> None:
    before = ""
    for place, token in enumerate(words):
        name = bare_name(token)
        folded = name.lower() if token[0] == "name" else name
        # The name of an array type is the name of its element type after an underscore.
        if folded.startswith(_CATALOGUE) or folded.lstrip("_") in _NAMING_TYPES:
            raise StatementError(f"applets may not use {name[:63]}")
        if token[0] == "name" and folded in _LOGIN_NAMES:
            raise StatementError(f"applets may not use {name[:63]}")
        called = place + 1 < len(words) and words[place + 1][1] == "("
        after_dot = place > 0 and words[place - 1][1] == "."
        # TREAT(x AS f) is f(x), whatever function `f` is.
        refused = called and (
            (folded in forbidden.called and before != "INTO") or folded == "treat"
        )
        if refused or (after_dot and folded in forbidden.dotted):
            raise StatementError(f"applets may not use function {name[:63]}")
        if token[0] == "name" and folded == "into" and before != "INSERT":
            raise StatementError("applets may not use SELECT INTO")
        before = name.upper() if token[0] == "name" else ""
