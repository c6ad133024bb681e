"""The alert rules: Prometheus accepts them, and they fire when they should."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.docs.site import DOCS, ROOT
from tests.support.tools import require_tool

PAGE = (DOCS / "how-to" / "monitor.md").read_text("utf-8")
METRICS = (DOCS / "reference" / "metrics.md").read_text("utf-8")
FILE = ROOT / "monitoring" / "prometheus" / "fieldbrook.rules.yml"
RULES = FILE.read_text("utf-8")
ALERTS = re.findall(r"alert: (\w+)", RULES)

# For each alert of chains: its series, and when it is to be there. Values are one a minute.
CHAIN = 'chain="4690"'
FIRING: dict[str, tuple[dict[str, str], str, str]] = {
    # alert: (series, the time at which it fires, the labels it has)
    "FieldbrookChainStands": ({"chain_head_age_seconds": "0+60x20"}, "12m", CHAIN),
    "FieldbrookMonitorsLag": ({"chain_monitor_lag_blocks": "60+1x40"}, "12m", CHAIN),
    "FieldbrookMonitorsFail": ({"chain_monitors_failing": "1x20"}, "11m", CHAIN),
    "FieldbrookTransactionStuck": ({"transactions_oldest_seconds": "0+60x40"}, "31m", CHAIN),
    "FieldbrookFundsLow": ({"chain_accounts_low": "0x4 1x20"}, "11m", CHAIN),
    "FieldbrookNoncesDiffer": ({"chain_nonces_missing": "2x20"}, "11m", CHAIN),
    "FieldbrookEndpointUnusable": (
        {"chain_endpoint_usable@1": "0x20", "chain_endpoint_usable@0": "1x20"},
        "16m",
        f'{CHAIN},endpoint="1"',
    ),
    "FieldbrookEndpointsDisagree": ({"chain_wrong_answers_total": "0x4 1x20"}, "6m", CHAIN),
    "FieldbrookEndpointsChange": ({"chain_failovers_total": "0+1x40"}, "20m", CHAIN),
}
QUIET = {
    "chain_head_age_seconds": "0 60 120 180 240 0 60 120 180 240 0",
    "chain_monitor_lag_blocks": "900-60x10 0x40",
    "chain_monitors_failing": "1x5 0x40",
    "transactions_oldest_seconds": "0+60x20 0x20",
    "chain_accounts_low": "1x3 0x40",
    "chain_nonces_missing": "1x5 0x40",
    "chain_endpoint_usable@0": "1 0 0 0 1x40",
    "chain_wrong_answers_total": "7x40",
    "chain_logs_omitted_total": "3x40",
    "chain_failovers_total": "0 1x40",
}

HOST = 'host="h2"'
OF_HOSTS: dict[str, tuple[dict[str, str], str, str]] = {
    "FieldbrookHostSilent": ({f"host_silence_seconds{{{HOST}}}": "0 1 60+60x20"}, "6m", HOST),
    "FieldbrookOneMoreLoss": ({"hosts_spare": "1x4 0x20"}, "8m", ""),
    "FieldbrookJournalStalled": ({"hosts_spare": "0x4 -1x20"}, "7m", ""),
    "FieldbrookFenced": (
        {'appends_total{result="fenced"}': "0x4 1x20"},
        "6m",
        'result="fenced"',
    ),
    "FieldbrookClocksApart": (
        {f"host_clock_difference_seconds{{{HOST}}}": "0x2 -3x20"},
        "9m",
        HOST,
    ),
    "FieldbrookRegistryBehind": ({"registry_lag": "0x4 3x20"}, "8m", ""),
    "FieldbrookChainBroken": (
        {'health_state{state="chain_broken"}': "0x4 1x20"},
        "5m",
        'state="chain_broken"',
    ),
    "FieldbrookStreamsFull": (
        {"stream_bytes": "10+10x20", "stream_limit_bytes": "100x20"},
        "14m",
        "",
    ),
}
QUIET_HOSTS = {
    f"host_silence_seconds{{{HOST}}}": "0 30 0 0.2 30 0x40",
    "hosts_spare": "1 0 1 1 0 1x40",
    "append_oldest_seconds": "0 9 0 9 12 0x40",
    'appends_total{result="fenced"}': "7x45",
    'appends_total{result="stored"}': "0+100x45",
    f"host_clock_difference_seconds{{{HOST}}}": "0.5 2 -0.5x43",
    "registry_lag": "0 5 0 0 9 0x40",
    'health_state{state="chain_broken"}': "0x45",
    "stream_bytes": "10x45",
    "stream_limit_bytes": "0x45",  # a node in no cluster
}


def series(name: str) -> str:
    metric, _, endpoint = name.partition("@")
    more = f',endpoint="{endpoint}"' if endpoint else ""
    return f"fieldbrook_{metric}{{{CHAIN}{more}}}"


def test_rules_name_only_metrics_that_there_are() -> None:
    used = set(re.findall(r"\bfieldbrook_\w+", RULES))
    known = set(re.findall(r"`(fieldbrook_\w+)`", METRICS))
    known |= {f"{name}_bucket" for name in known}
    assert used
    assert used - known == set()


def test_every_alert_is_explained() -> None:
    of_chains, _, of_hosts = RULES.partition("fieldbrook-chains")[2].partition("fieldbrook-cluster")
    assert set(re.findall(r"alert: (\w+)", of_chains)) == set(FIRING)
    assert set(re.findall(r"alert: (\w+)", of_hosts)) == set(OF_HOSTS)
    assert [name for name in ALERTS if f"`{name}`" not in PAGE] == []


def test_no_two_alerts_have_one_name() -> None:
    assert len(set(ALERTS)) == len(ALERTS)


def test_prometheus_accepts_the_rules() -> None:
    command = [require_tool("promtool"), "check", "rules", str(FILE)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def checked(folder: Path, tests: list[dict[str, Any]]) -> None:
    """Make Prometheus test the rules."""
    file = folder / "test.json"
    given = {"rule_files": [str(FILE)], "evaluation_interval": "1m", "tests": tests}
    file.write_text(json.dumps(given))
    done = subprocess.run(
        [require_tool("promtool"), "test", "rules", str(file)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("alert", [*FIRING, *OF_HOSTS])
def test_an_alert_fires_in_its_case(tmp_path: Path, alert: str) -> None:
    given, at, labels = (FIRING | OF_HOSTS)[alert]
    expected = dict(re.findall(r'(\w+)="(\w+)"', labels))
    name = series if alert in FIRING else "fieldbrook_{}".format
    test = {
        "interval": "1m",
        "input_series": [{"series": name(n), "values": v} for n, v in given.items()],
        "alert_rule_test": [
            {"eval_time": at, "alertname": alert, "exp_alerts": [{"exp_labels": expected}]}
        ],
    }
    checked(tmp_path, [test])


@pytest.mark.parametrize(
    ("alerts", "given"),
    [
        (FIRING, {series(name): values for name, values in QUIET.items()}),
        (OF_HOSTS, {f"fieldbrook_{name}": values for name, values in QUIET_HOSTS.items()}),
    ],
    ids=["chains", "hosts"],
)
def test_alerts_are_quiet_when_nothing_lasts(
    tmp_path: Path, alerts: dict[str, object], given: dict[str, str]
) -> None:
    test = {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in given.items()],
        "alert_rule_test": [
            {"eval_time": f"{minute}m", "alertname": alert, "exp_alerts": []}
            for alert in alerts
            for minute in (3, 7, 9, 20, 30)
        ],
    }
    checked(tmp_path, [test])
