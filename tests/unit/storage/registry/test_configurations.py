"""Values of a project's configurations."""

from __future__ import annotations

from fieldbrook.core.model import PROJECT_CHAINS, PROJECT_ENV, PROJECT_SPENDING, Config
from fieldbrook.storage.registry.configurations import (
    environment_of,
    retries_chains,
    wei_per_day,
)


def config(kind: str, value: str) -> Config:
    return Config(config_id=1, project_id=2, kind=kind, value=value.encode())


def test_a_project_without_a_configuration_has_no_variables_no_retries_and_no_limit() -> None:
    assert environment_of(None) == {}
    assert not retries_chains(None)
    assert wei_per_day(None) is None


def test_variables_are_pairs_of_a_name_and_a_text() -> None:
    assert environment_of(config(PROJECT_ENV, '{"env":[["LIMIT","25"]]}')) == {"LIMIT": "25"}


def test_a_spending_limit_is_a_number_of_wei_of_any_size() -> None:
    found = config(PROJECT_SPENDING, '{"weiPerDay":"100000000000000000000000"}')
    assert wei_per_day(found) == 10**23


def test_only_the_choice_to_retry_has_events_answered_503_without_a_chain() -> None:
    assert retries_chains(config(PROJECT_CHAINS, '{"unavailable":"RETRY"}'))
    assert not retries_chains(config(PROJECT_CHAINS, '{"unavailable":"CODE"}'))
