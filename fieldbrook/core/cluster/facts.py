"""What the hosts of a cluster tell of themselves, and what one of them knows of all."""

from __future__ import annotations

import msgspec

_FRESH_S = 3.0


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """What a host tells of itself in a beat. A host of an older version leaves out some of it.

    Attributes:
        version: of fieldbrook.
        draining: it is about to stop.
        ready: its engine has caught up with the others since it was last alone.
        load: the load average of its machine over the last minute, for each processor.
        running: how many projects run there.
        led: the number of streams that it leads.
        held: the number of streams of which it has a copy.
        at_risk: how many of the streams that it leads stop when one more copy is lost.
        stalled: how many of the streams that it holds have no leader.
        lags: how many records the copies of other hosts lack, of the streams that it leads.
        registry: the number of the last change of the registry that it has; 0: not known.
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
    """A beat: what is told, and what the clocks need.

    Attributes:
        clock: the sender's clock, in Unix seconds.
        mark: the sender's monotonic time in seconds, which the receiver sends back.
        echo: the mark of the receiver's last beat, and the seconds since it arrived.
    """

    clock: float = 0.0
    mark: float = 0.0
    echo: tuple[float, float] | None = None


class Known(msgspec.Struct, frozen=True, kw_only=True):
    """What this host knows of one host.

    Attributes:
        name: its name.
        told: what it has told last.
        heard: when, in monotonic seconds of this machine; 0: never.
        clock_difference_s: how far its clock is ahead of this host's; None: not known.
        clock_error_s: by how much that may be wrong.
        lag: how many records its copies of streams lack; None while nobody knows.
        registry_lag: how many changes of the registry it lacks.
    """

    name: str
    told: Told
    heard: float = 0.0
    clock_difference_s: float | None = None
    clock_error_s: float = 0.0
    lag: int | None = None
    registry_lag: int = 0


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What this host knows of its cluster.

    Attributes:
        me: its name.
        at: when this was written, in monotonic seconds of this machine. It is written each second.
        hosts: all hosts, itself included.
        spare: how many more hosts may be lost before nothing is committed; -1: that is so now.
        outlook: what one more loss would mean, in words.
    """

    me: str
    at: float
    hosts: list[Known]
    spare: int
    outlook: str

    def silence_s(self, host: Known, now: float) -> float:
        """For how long a host is silent at a moment, in seconds.

        Beats may have come since this was written, unless it is so old that nobody writes it.
        """
        is_fresh = now - self.at < _FRESH_S
        return max(0.0, (self.at if is_fresh else now) - host.heard)
