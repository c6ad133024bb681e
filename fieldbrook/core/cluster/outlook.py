"""The effect of losing one more host, as a number and as a text."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from fieldbrook.core.cluster.membership import QUORUM_HOSTS


def spare_hosts(hosts: int, up: int, *, stalled: bool, at_risk: bool) -> int:
    """Return how many more hosts may be lost before some events cannot be committed.

    Args:
        hosts: the number of all hosts.
        up: how many of them are up, including this one.
        stalled: whether a stream has no leader.
        at_risk: whether a stream loses its quorum with one more replica lost.

    Returns:
        A number of hosts; -1 if some events cannot be committed now.
    """
    spare = max(-1, up - (hosts // 2 + 1))
    if stalled:
        return -1
    return min(spare, 0) if at_risk else spare


def outlook(
    hosts: Sequence[str], silent: Collection[str], spare: int, behind: Collection[str]
) -> str:
    """Describe the effect of losing one more host.

    Args:
        hosts: the names of all hosts.
        silent: the names of hosts without recent heartbeats.
        spare: the result of `spare_hosts`.
        behind: the names of hosts with a replica that is behind.
    """
    count, majority = len(hosts), len(hosts) // 2 + 1
    if count < QUORUM_HOSTS:
        missing = QUORUM_HOSTS - count
        more = "1 more host has" if missing == 1 else f"{missing} more hosts have"
        return f"{more} to join. Until then each host's data is on that host alone."
    reason = f"{_names(silent)} silent" if silent else ""
    if behind:
        reason += f"{' and ' if reason else ''}{_names(behind)} behind"
    here = count - len(silent)
    if here < majority:
        return (
            f"Nothing is committed: {here} of {count} hosts {'is' if here == 1 else 'are'} up, "
            f"and {majority} are needed. Acknowledged events are kept."
        )
    if spare < 0:
        return "Streams have no leader, so some projects cannot commit. An election takes 4 to 9 s."
    if spare == 0:
        why = f"{reason[0].upper()}{reason[1:]}. " if reason else ""
        return (
            f"{why}When one more host is lost, nothing is committed until a host is back. "
            "Acknowledged events are kept."
        )
    return (
        f"{'One host' if spare == 1 else f'{spare} hosts'} may be lost: others take over the "
        "projects in seconds, and acknowledged events are kept."
    )


def _names(hosts: Collection[str]) -> str:
    if len(hosts) == 1:
        return f"host {next(iter(hosts))} is"
    return f"hosts {', '.join(sorted(hosts))} are"
