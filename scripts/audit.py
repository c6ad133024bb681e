#!/usr/bin/env python3
"""Check the dependencies of the node and its tools: scripts/audit.py

* every requirement of setup.cfg is bounded above and names no pre-release;
* installed distributions are compatible (`pip check`), and none is a pre-release except parts of
  OpenTelemetry, which have no other releases;
* every installed dependency, direct or not, and every library of the dashboard has a licence of the
  list below;
* no dependency has a known vulnerability, according to pip-audit, if pip-audit is installed and can
  reach its service. If not, the last line says that advisories were not consulted; no other finding
  depends on the network.
"""

from __future__ import annotations

import configparser
import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parent.parent
_AUDIT_LIMIT_S = 60

# The licences by their SPDX names; the names in older packages follow. The licences in the last
# line are for libraries that are used unchanged: a change to one of them would have to be
# published.
ALLOWED = frozenset(
    """Apache-2.0 Apache-2.0-WITH-LLVM-exception BSD-2-Clause BSD-3-Clause CC0-1.0 CNRI-Python ISC
    MIT MIT-0 OLDAP-2.8 PSF-2.0 Unlicense ZPL-2.1 0BSD
    LGPL-3.0-only MPL-2.0""".split()  # noqa: SIM905 - a list of them would be a page
)
_NAMES = {
    "3-Clause BSD License": "BSD-3-Clause",
    "Apache": "Apache-2.0",
    "Apache 2.0": "Apache-2.0",
    "Apache Software License": "Apache-2.0",
    "BSD": "BSD-3-Clause",
    "BSD License": "BSD-3-Clause",
    "BSD-derived (http://www.repoze.org/LICENSE.txt)": "BSD-3-Clause",
    "CC0 1.0 Universal (CC0 1.0) Public Domain Dedication": "CC0-1.0",
    "ISC License (ISCL)": "ISC",
    "MIT License": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "Python Software Foundation License": "PSF-2.0",
    "The Unlicense (Unlicense)": "Unlicense",
    "Zope Public License": "ZPL-2.1",
}
# Parts of OpenTelemetry that have no other releases; the extra `otel` needs them.
_ONLY_PRE_RELEASES = frozenset(
    {
        "opentelemetry-exporter-http-transport",
        "opentelemetry-exporter-otlp-common",
        "opentelemetry-semantic-conventions",
    }
)
# Packages whose metadata name no licence; read from their licence files.
_READ = {"quickjs-ng": "MIT"}
_NOT_LICENCES = ("DFSG approved", "OSI Approved", "Public Domain", "Repoze Public License")


class Advisories(NamedTuple):
    """Findings of pip-audit; `not_consulted` is the reason why it could not be queried, or ""."""

    findings: list[str]
    not_consulted: str = ""


def main() -> int:
    """Print all problems; return 1 if there is any."""
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg", "utf-8")
    required = list(requirements(setup))
    installed = list(installed_dependencies(required))
    problems = [
        *(problem for requirement in required for problem in requirement_problems(requirement)),
        *installation_conflicts(),
        *(problem for each in installed for problem in distribution_problems(each)),
        *vendored_problems(),
    ]
    advisories = query_advisories([each.name for each in installed])
    problems += advisories.findings
    for problem in problems:
        print(problem)
    print(f"{len(required)} requirements, {len(installed)} distributions")
    if advisories.not_consulted:
        print(f"advisories not consulted: {advisories.not_consulted}")
    return 1 if problems else 0


def vendored_problems() -> Iterator[str]:
    """Return the libraries of the dashboard with another licence; scripts/vendored.py checks the
    licence texts."""
    described = tomllib.loads((ROOT / "dashboard" / "vendor.toml").read_text("utf-8"))
    for package in described["package"]:
        if package["licence"] not in ALLOWED:
            yield f"dashboard/vendor.toml: {package['name']} is under {package['licence']}"


def requirements(setup: configparser.ConfigParser) -> Iterator[Requirement]:
    """Yield the requirements of the node and of every extra."""
    texts = [setup["options"]["install_requires"], *setup["options.extras_require"].values()]
    for line in "\n".join(texts).splitlines():
        if line.strip():
            yield Requirement(line.strip())


def requirement_problems(requirement: Requirement) -> Iterator[str]:
    """Return the problems of a requirement's version limits."""
    specifiers = list(requirement.specifier)
    open_above = not any(each.operator in ("<", "<=", "==", "~=", "===") for each in specifiers)
    # The build backend keeps its interface stable, and an old one fails with new versions of
    # Python.
    if open_above and requirement.name != "setuptools":
        yield f"setup.cfg: {requirement} has no upper bound"
    for each in specifiers:
        if Version(each.version.removesuffix(".*")).is_prerelease:
            yield f"setup.cfg: {requirement} names a pre-release"


def installed_dependencies(required: Iterable[Requirement]) -> Iterator[metadata.Distribution]:
    """Yield the installed distributions of these requirements and of their own requirements, each
    once."""
    seen: set[str] = set()
    todo = list(required)
    while todo:
        requirement = todo.pop()
        name = canonicalize_name(requirement.name)
        if name in seen:
            continue
        try:
            distribution = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue  # an extra that is not installed; `pip check` reports missing requirements
        seen.add(name)
        yield distribution
        for text in distribution.requires or ():
            theirs = Requirement(text)
            extras = requirement.extras or {""}
            if theirs.marker is None or any(theirs.marker.evaluate({"extra": e}) for e in extras):
                todo.append(theirs)


def installation_conflicts() -> Iterator[str]:
    """Yield the problems that `pip check` reports."""
    command = [sys.executable, "-P", "-m", "pip", "check", "--disable-pip-version-check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        yield from (done.stdout or done.stderr).splitlines()


def distribution_problems(distribution: metadata.Distribution) -> Iterator[str]:
    """Yield the problems of an installed distribution: a pre-release, a licence."""
    name = f"{distribution.name} {distribution.version}"
    unfinished = Version(distribution.version).is_prerelease
    if unfinished and canonicalize_name(distribution.name) not in _ONLY_PRE_RELEASES:
        yield f"{name} is a pre-release"
    stated = licence(distribution)
    if not is_allowed(stated):
        yield f"{name}: licence {stated or '(none stated)'!r} is not in the list of licences"


def licence(distribution: metadata.Distribution) -> str:
    """Return the licence that a distribution states, as an SPDX expression if possible."""
    fields = distribution.metadata
    if "License-Expression" in fields:
        return fields["License-Expression"]
    classified = [
        words.rpartition(" :: ")[2]
        for words in fields.get_all("Classifier") or ()
        if words.startswith("License :: ")
    ]
    named = [words for words in classified if words not in _NOT_LICENCES]
    if not named:
        named = fields["License"].splitlines()[:1] if "License" in fields else []
    if not named:
        return _READ.get(distribution.name, "")
    # Several classifiers stand for a choice or for parts, so all of them must be allowed.
    return " AND ".join(_NAMES.get(words, words) for words in named)


def is_allowed(expression: str) -> bool:
    """Return whether an SPDX expression is in the list. If it has parentheses, every licence in it
    must be in the list, which is enough for the present dependencies."""
    joined = expression.replace(" WITH ", "-WITH-")
    if "(" in joined:
        joined = re.sub(r"[()]", " ", joined).replace(" OR ", " AND ")
    return any(
        all(part.strip() in ALLOWED for part in choice.split(" AND "))
        for choice in joined.split(" OR ")
    )


def query_advisories(names: Iterable[str]) -> Advisories:
    """Query pip-audit for known vulnerabilities of distributions."""
    command = [sys.executable, "-P", "-m", "pip_audit", "--progress-spinner=off", "--format=json"]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=_AUDIT_LIMIT_S
        )
    except subprocess.TimeoutExpired:
        return Advisories([], f"no answer within {_AUDIT_LIMIT_S} s")
    return read_audit(done.stdout, done.stderr, names)


def read_audit(output: str, complaint: str, names: Iterable[str]) -> Advisories:
    """Read the findings about these distributions from the output of pip-audit."""
    try:
        entries = json.loads(output)["dependencies"]
    except (ValueError, KeyError, TypeError):
        lines = [line.strip() for line in complaint.splitlines() if line.strip()]
        return Advisories([], lines[-1] if lines else "pip-audit printed nothing")
    ours = {canonicalize_name(name) for name in names} - {"fieldbrook"}
    asked = [entry for entry in entries if canonicalize_name(entry["name"]) in ours]
    findings = [
        f"{entry['name']} {entry['version']}: {found['id']}, fixed in "
        f"{', '.join(found.get('fix_versions') or ['no release'])}"
        for entry in asked
        for found in entry.get("vulns", ())
    ]
    # If the service cannot be reached, pip-audit may skip every entry without an error.
    skipped = [entry for entry in asked if "vulns" not in entry]
    if skipped:
        reason = f"of {len(skipped)} of {len(asked)}: {skipped[0].get('skip_reason', 'skipped')}"
        return Advisories(findings, reason)
    return Advisories(findings)


if __name__ == "__main__":
    sys.exit(main())
