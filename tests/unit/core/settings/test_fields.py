"""Values of flags, variables and files become values of the types that the settings have."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fieldbrook.core.settings import load, settings_fields
from fieldbrook.core.settings.checks import read_setting
from fieldbrook.core.settings.fields import read_value


@pytest.mark.parametrize("name", settings_fields())
def test_every_default_is_a_value_that_its_setting_accepts(name: str) -> None:
    field = settings_fields()[name]
    assert read_setting(name, field.default, {}) == field.default
    assert field.description


@pytest.mark.parametrize(
    ("written", "number"),
    [
        ("5", 5),
        ("+5", 5),
        ("0005", 5),
        (" 5\t\n", 5),
        ("5\u00a0", 5),
        ("5.0", 5),
        ("20_000", 20_000),
        ("1_000.00", 1_000),
        (6.0, 6),
    ],
)
def test_a_whole_number_may_be_written_in_several_ways(written: object, number: int) -> None:
    read = read_value(settings_fields()["project_idle_s"], written)
    assert (read, type(read)) == (number, int)


@pytest.mark.parametrize(
    "written",
    [
        *("", " ", "five", "5 0", "1,000", "1__000", "_1", "1_", "5.", ".5", "5.5", "5e0", "0x10"),
        *("-1", "0", "604801", "9" * 30, "9" * 5_000, "\u0665", "\uff15", "null", "true"),
        *(5.25, float("inf"), float("nan"), 1e300, True, False, None, [], [5], {}, b"5"),
    ],
)
def test_what_is_no_whole_number_within_the_limits_is_refused(written: object) -> None:
    with pytest.raises(ValueError, match=r"^must be a whole number from 1 to 604800$"):
        read_value(settings_fields()["project_idle_s"], written)


@pytest.mark.parametrize(
    ("truth", "written"),
    [
        (True, ["true", "True", "TRUE", "t", "T", "yes", "Yes", "y", "on", "ON", "1", 1, 1.0]),
        (False, ["false", "False", "f", "no", "NO", "n", "N", "off", "Off", "0", 0, 0.0]),
    ],
)
def test_true_and_false_may_be_written_in_several_ways(truth: bool, written: list[object]) -> None:
    for word in (truth, *written):
        assert read_value(settings_fields()["mqtt_tls"], word) is truth


@pytest.mark.parametrize("written", ["", " true", "2", "-1", "enabled", 3, 0.5, None, [], b"true"])
def test_what_is_neither_true_nor_false_is_refused(written: object) -> None:
    with pytest.raises(ValueError, match=r"^must be true or false$"):
        read_value(settings_fields()["mqtt_tls"], written)


@pytest.mark.parametrize(
    ("written", "number"),
    [("0", 0.0), ("1.0", 1.0), (1, 1.0), (" .5 ", 0.5), ("1e-3", 0.001), ("0.2_5", 0.25)],
)
def test_a_share_is_a_number_from_0_to_1(written: object, number: float) -> None:
    read = read_value(settings_fields()["trace_ratio"], written)
    assert (read, type(read)) == (number, float)


@pytest.mark.parametrize("written", ["", "x", "2", "-0.1", "nan", "inf", "1e400", "\u0660", True])
def test_what_is_no_share_is_refused(written: object) -> None:
    with pytest.raises(ValueError, match=r"^must be a number from 0 to 1$"):
        read_value(settings_fields()["trace_ratio"], written)


@pytest.mark.parametrize("name", ["bind", "data", "prover_url", "tls_key"])
def test_only_a_string_is_a_text_or_a_path(name: str) -> None:
    for written in (5, 5.0, True, ["a"], {"a": 1}, b"a"):
        with pytest.raises(ValueError, match=r"^must be a string$"):
            read_value(settings_fields()[name], written)


def test_a_text_is_utf_8_and_a_path_need_not_be() -> None:
    name_of_a_file = b"caf\xe9".decode("utf-8", "surrogateescape")  # the form in `os.environ`
    with pytest.raises(ValueError, match=r"^must be a string$"):
        read_value(settings_fields()["bind"], name_of_a_file)
    assert read_value(settings_fields()["data"], name_of_a_file) == Path(name_of_a_file)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("log_level", "must be one of DEBUG, INFO, WARNING, ERROR, CRITICAL"),
        ("dashboard_plain", "must be one of serve, redirect, refuse"),
        ("event_port", "must be a whole number from 1 to 65535"),
        ("core_dumps", "must be true or false"),
        ("api_hosts", ""),
        ("data", ""),
    ],
)
def test_a_setting_says_what_it_accepts(name: str, words: str) -> None:
    assert settings_fields()[name].allowed == words


def test_a_log_level_may_be_in_lower_case() -> None:
    levels: list[Any] = [load(log_level=level).log_level for level in ("debug", "Info", "ERROR")]
    assert levels == ["DEBUG", "INFO", "ERROR"]
