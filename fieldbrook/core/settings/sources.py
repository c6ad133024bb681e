"""Sources of settings: flags, then environment variables, then a TOML file, then defaults."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from fieldbrook.core.errors import SettingsError
from fieldbrook.core.settings.checks import read_setting
from fieldbrook.core.settings.renamed import (
    use_new_names,
    values_of_old_variables,
)
from fieldbrook.core.settings.schema import (
    ENVIRONMENT_PREFIX,
    SECRETS,
    Settings,
    settings_fields,
)

CONFIG_VARIABLE = "FIELDBROOK_CONFIG"
_CHAINS_FORM = (
    'must be a list like [{"id": 4690, "name": "iotex-testnet", "endpoint": "https://..."}]'
)

_Source = tuple[Mapping[str, Any], Mapping[str, str], Callable[[str], str]]
"""The values by setting, the old names in the source by setting, and the function that returns a
name in the form of the source."""


def load(*, config: Path | None = None, **given: Any) -> Settings:
    """Load the settings of this process from all sources.

    Args:
        config: a TOML file; by default the file that `FIELDBROOK_CONFIG` names, else none.
        given: values from the command line; None means not given.

    Returns:
        The settings. `warnings` names the renamed and removed settings that were used, and
        `sources` has the sources of the values.

    Raises:
        SettingsError: the file cannot be read or has an unknown key, or a value is not
            allowed. The reason names the setting, the value, its source and what is allowed.
    """
    warnings: list[str] = []
    flags = {name: value for name, value in given.items() if value is not None}
    flags, old_flags = use_new_names(flags, flag_of, warnings)
    environment, old_variables = _read_environment(warnings)
    file_path = config or _config_from_environment()
    file, old_keys = ({}, {}) if file_path is None else _read_file(file_path, warnings)
    merged = {**file, **environment, **flags}
    sources: tuple[_Source, ...] = (
        (flags, old_flags, flag_of),
        (environment, old_variables, variable_of),
        (file, old_keys, lambda _: str(file_path)),
    )
    values, refused = _read_all(merged)
    if refused:
        raise SettingsError(
            reason="; ".join(
                _explain(name, reasons, merged, *_as_written(name, sources))
                for name, reasons in refused.items()
            )
        )
    return Settings(
        **values,
        warnings=tuple(warnings),
        sources={
            **dict.fromkeys(file, "file"),
            **dict.fromkeys(environment, "environment"),
            **dict.fromkeys(flags, "option"),
        },
    )


def _read_all(given: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, tuple[str, ...]]]:
    """Return the settings with the given values, and the reasons why values are refused."""
    fields = settings_fields()
    values: dict[str, Any] = {}
    refused: dict[str, tuple[str, ...]] = {}
    for name in fields:
        if name in given:
            try:
                values[name] = read_setting(name, given[name], values)
            except ValueError as error:
                refused[name] = error.args
    for name in given:
        if name not in fields:
            refused[name] = (f"there is no such setting; there are {', '.join(sorted(fields))}",)
    return values, refused


def _as_written(name: str, sources: Sequence[_Source]) -> tuple[str, str]:
    """Return the name with which the user gave a setting, and the source of the value."""
    for values, old_names, label in sources:
        if name in values:
            written = old_names.get(name, name)
            return written, label(written)
    return name, "the default"


def flag_of(name: str) -> str:
    """Return the command-line option of a setting."""
    return "--" + name.replace("_", "-")


def variable_of(name: str) -> str:
    """Return the environment variable of a setting."""
    return ENVIRONMENT_PREFIX + name.upper()


def clean_environment() -> None:
    """Remove the variables with secrets, because programs that the node starts must not inherit
    them."""
    secrets = {variable_of(name).lower() for name in SECRETS}
    for variable in list(os.environ):
        if variable.lower() in secrets:
            del os.environ[variable]


def _read_environment(warnings: list[str]) -> tuple[dict[str, Any], dict[str, str]]:
    variables = {name.lower(): value for name, value in os.environ.items()}
    values: dict[str, Any] = {
        name: variables[variable_of(name).lower()]
        for name in settings_fields()
        if variable_of(name).lower() in variables
    }
    if "chains" in values:
        try:
            values["chains"] = msgspec.json.decode(values["chains"])
        except (ValueError, RecursionError):
            reason = f"{variable_of('chains')} is not JSON: {_CHAINS_FORM}"
            raise SettingsError(reason=reason) from None
        if values["chains"] is None:
            del values["chains"]
    return use_new_names({**values, **values_of_old_variables()}, variable_of, warnings)


def _config_from_environment() -> Path | None:
    named = os.environ.get(CONFIG_VARIABLE)
    return Path(named) if named else None


def _read_file(path: Path, warnings: list[str]) -> tuple[dict[str, Any], dict[str, str]]:
    import tomllib

    try:
        values = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise SettingsError(reason=f"settings file {path}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:  # including a number that is too long
        raise SettingsError(reason=f"settings file {path} is not TOML: {error}") from None
    values, old_keys = use_new_names(values, lambda name: f"{name} in {path}", warnings)
    unknown = sorted(set(values) - set(settings_fields()))
    if unknown:
        known = ", ".join(sorted(settings_fields()))
        raise SettingsError(
            reason=f"settings file {path}: unknown setting {', '.join(unknown)}; known are {known}"
        )
    return values, old_keys


def _explain(
    name: str, reasons: Sequence[str], values: Mapping[str, Any], written: str, source: str
) -> str:
    value = "(not shown)" if name in SECRETS else repr(values[name])
    if values[name] == "":
        reasons = (f"must not be empty; remove it for the default, {default_text(name)}",)
    elif name == "chains":
        reasons = (*reasons, _CHAINS_FORM)
    return f"{written} = {value} (from {source}): {'; '.join(reasons)}"


def default_text(name: str) -> str:
    """Return the default of a setting for users: `none`, or the value, for sizes also in MiB or
    GiB."""
    default = settings_fields()[name].default
    if default is None or default in ("", ()):
        return "none"
    if name.endswith("_bytes"):
        unit, size = ("GiB", 1 << 30) if default >= 1 << 30 else ("MiB", 1 << 20)
        return f"{default} ({default // size} {unit})"
    return str(default)
