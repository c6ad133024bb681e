"""The state of a cluster: the heartbeats of its hosts, and the facts that one host has about
all."""

from __future__ import annotations

import msgspec

_FRESH_S = 3.0


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """What a host reports about itself in a heartbeat. Older versions leave out some fields.

    Attributes:
        version: the version of fieldbrook.
        draining: whether the host is about to stop.
        ready: whether the host may own projects: its replication engine has caught up with the
            others since the host was last without a majority.
        load: the load average of its machine over the last minute, per processor.
        running: the number of projects that run on the host.
        led: the number of streams that the host leads.
        held: the number of streams of which the host has a replica.
        at_risk: how many of the led streams lose their quorum if one more replica is lost.
        stalled: the number of held streams that have no leader.
        lags: by host: how many records its replicas of the led streams lack.
        registry: the number of the last registry change that the host has; 0 if unknown.
    """

    version: str = ""
    draining: bool = False
    ready: bool = True
    load: float = 0.0
    running: int = 0
    led: int = 0
    held: int = 0
    at_risk: int = 0
    stalled: int = 0
    lags: dict[str, int] = {}
    registry: int = 0


class Beat(Told, frozen=True, kw_only=True):
    """A heartbeat: the report of a host, and the times for the comparison of the clocks.

    Attributes:
        clock: the sender's clock, in Unix seconds.
        mark: the sender's monotonic time in seconds, which the receiver sends back.
        echo: the mark of the receiver's last heartbeat, and the seconds since it arrived.
    """

    clock: float = 0.0
    mark: float = 0.0
    echo: tuple[float, float] | None = None


class Known(msgspec.Struct, frozen=True, kw_only=True):
    """The facts that this host has about one host.

    Attributes:
        name: the name of the host.
        told: its last report.
        heard: when its last heartbeat arrived, in monotonic seconds of this machine; 0 if none did.
        clock_difference_s: how far its clock is ahead of this host's; None if unknown.
        clock_error_s: the largest error of `clock_difference_s`.
        lag: how many records its replicas of streams lack; None if unknown.
        registry_lag: how many registry changes it lacks.
    """

    name: str
    told: Told
    heard: float = 0.0
    clock_difference_s: float | None = None
    clock_error_s: float = 0.0
    lag: int | None = None
    registry_lag: int = 0


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """The facts that this host has about its cluster.

    Attributes:
        me: the name of this host.
        at: the time of these facts, in monotonic seconds of this machine. They are written once a
            second.
        hosts: all hosts, including this one.
        spare: how many more hosts may be lost before commits stop; -1 if they have stopped.
        outlook: a text about the effect of losing one more host.
    """

    me: str
    at: float
    hosts: list[Known]
    spare: int
    outlook: str

    def silence_s(self, host: Known, now: float) -> float:
        """Return for how long a host is silent at the time `now`, in seconds.

        If these facts are fresh, the silence ends at `at`, because heartbeats may have arrived
        since then. If they are old, their writer has failed, and the silence ends at `now`.
        """
        is_fresh = now - self.at < _FRESH_S
        return max(0.0, (self.at if is_fresh else now) - host.heard)
