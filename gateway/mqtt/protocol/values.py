"""The declaration of packets.

Packets are frozen dataclasses for the type checker, which sees every line of this project. At run
time they are not: a frozen dataclass sets each field through `object.__setattr__`, which would be
the largest part of decoding a packet.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

__all__ = ["value"]

if TYPE_CHECKING:
    from dataclasses import dataclass as value
else:
    import dataclasses

    def value(*, frozen: bool, slots: bool):  # noqa: ANN201 - typed by the import above
        """Make a dataclass that compares, hashes and matches as a frozen one."""
        return dataclasses.dataclass(unsafe_hash=frozen, slots=slots)
