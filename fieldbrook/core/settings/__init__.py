"""The node's settings: flags, then `FIELDBROOK_*` variables, then a TOML file, then defaults.

In: the command line, the environment and the settings file of an operator.
Out: `Settings`, checked and frozen; an error text for every value that is not allowed.
Open first: `schema.py`, then `sources.py`.

Commands that run no node do not import this package, so that they start faster.
"""

from fieldbrook.core.settings.chain import Chain
from fieldbrook.core.settings.renamed import REMOVED, RENAMED
from fieldbrook.core.settings.schema import (
    ENVIRONMENT_PREFIX,
    SECRETS,
    URLS,
    Settings,
    Source,
    settings_fields,
)
from fieldbrook.core.settings.sources import (
    CONFIG_VARIABLE,
    clean_environment,
    default_text,
    flag_of,
    load,
    variable_of,
)
from fieldbrook.core.settings.values import listed, split_address

__all__ = [
    "CONFIG_VARIABLE",
    "ENVIRONMENT_PREFIX",
    "REMOVED",
    "RENAMED",
    "SECRETS",
    "URLS",
    "Chain",
    "Settings",
    "Source",
    "clean_environment",
    "default_text",
    "flag_of",
    "listed",
    "load",
    "settings_fields",
    "split_address",
    "variable_of",
]
