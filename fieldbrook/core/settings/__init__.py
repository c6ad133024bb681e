"""The node's settings: flags, then `FIELDBROOK_*` variables, then a TOML file, then defaults.

In: the command line, the environment and the settings file of an operator.
Out: `Settings`, checked and frozen; a text for every value that is not allowed.
Open first: `schema.py`, then `sources.py`.

Importing this costs 0.1 s, so the command line does it only in commands that run a node.
"""

from fieldbrook.core.settings.chain import Chain
from fieldbrook.core.settings.renamed import REMOVED, RENAMED
from fieldbrook.core.settings.schema import ENVIRONMENT_PREFIX, SECRETS, URLS, Settings, Source
from fieldbrook.core.settings.sources import (
    CONFIG_VARIABLE,
    allowed,
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
    "allowed",
    "clean_environment",
    "default_text",
    "flag_of",
    "listed",
    "load",
    "split_address",
    "variable_of",
]
