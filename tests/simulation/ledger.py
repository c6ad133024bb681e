"""The ledger: every event that was sent, the answers to its sender, and what must follow from
them."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from fieldbrook.actors.project.execution.runner import PROCESS_DIED
from fieldbrook.actors.wire import WireEntry
from fieldbrook.core.errors import EventOutcomeUnknownError, NodeError, ProjectNotFoundError
from fieldbrook.gateway.links.pending_event import Outcome
from fieldbrook.storage.project import kv
from fieldbrook.storage.project.reader import ProjectStoreReader
from tests.simulation.world.guests import COUNT, FAIL, KILL, TELL

APPLET_LETTERS = 10_000


class LedgerError(AssertionError):
    """The node broke a promise."""


@dataclass(eq=False)
class Sent:
    """One event from the view of its sender.

    `repeats`: the sender or the broker sends the event again until there is an answer, and the node
        runs it once. `line` names a sequence of events that must run in the order of their `place`.
    """

    tag: str
    project_id: int
    wishes: tuple[str, ...]
    repeats: bool
    line: str
    place: int
    removed: set[int]  # projects
    may_double: bool = False
    sendings: int = 0
    unknown: int = 0  # transmissions that were answered with an unknown outcome
    refused: int = 0
    code: int | None = None  # of its run, when it was acknowledged
    dead: bool = False  # acknowledged as failed: it is a dead letter
    gone: bool = False  # the project was removed

    @property
    def settled(self) -> bool:
        """Whether its sender does not wait any more."""
        answered = self.code is not None or self.dead or self.gone
        return answered or (not self.repeats and self.sendings == self.unknown + self.refused)

    def note(self, outcome: Outcome) -> None:
        """Record the answer to one transmission."""
        if isinstance(outcome, ProjectNotFoundError) or self.project_id in self.removed:
            self.gone = True
        elif isinstance(outcome, EventOutcomeUnknownError):
            self.unknown += 1
        elif isinstance(outcome, NodeError):
            self.refused += 1
        else:
            self._note_result(outcome)

    def _note_result(self, outcome: tuple[tuple[int, int, str], ...]) -> None:
        if len(outcome) != 1:
            raise LedgerError(f"{self.tag}: {len(outcome)} results instead of one")
        _, code, error = outcome[0]
        if error:
            self.dead = True
        elif code:  # 0 is the answer to a repeated delivery
            if self.code not in (None, code) and not self.may_double:
                raise LedgerError(f"{self.tag}: answered as number {self.code}, then as {code}")
            self.code = code
        elif self.code is None:
            self.code = 0


@dataclass
class Ledger:
    """All events of a run."""

    removed: set[int]  # projects
    events: dict[str, Sent] = field(default_factory=dict)
    told: dict[int, list[tuple[str, int]]] = field(default_factory=dict)  # delivered messages

    def add(self, sent: Sent) -> None:
        self.events[sent.tag] = sent

    def on_delivery(self, project_id: int, entry: WireEntry) -> None:
        """A message of a handler has left the node."""
        tag, _, count = entry[3].decode().partition(" ")
        self.told.setdefault(project_id, []).append((tag, int(count)))

    @property
    def settled(self) -> bool:
        """Whether no sender waits for an answer."""
        return all(s.settled or s.project_id in self.removed for s in self.events.values())

    def check(self, projects_dir: Path, projects: list[int]) -> None:
        """Compare the answers with the stores.

        Raises:
            LedgerError: they do not agree.
        """
        for project_id in projects:
            if project_id not in self.removed:
                self._check_project(projects_dir / str(project_id), project_id)
            elif (projects_dir / str(project_id)).exists():
                raise LedgerError(f"project {project_id} was removed, and its store is there")

    def _check_project(self, folder: Path, project_id: int) -> None:
        events = [s for s in self.events.values() if s.project_id == project_id]
        stored = _Stored(folder)
        for sent in events:
            _check_event(sent, stored.ran.get(sent.tag, []), stored.letters.count(sent.tag))
            # After two deaths with only this event in flight, it is regarded as their cause,
            # whatever it was.
            may_fail = {FAIL, KILL} & set(sent.wishes) or sent.tag in stored.blamed
            if sent.tag in stored.letters and not may_fail:
                raise LedgerError(f"{sent.tag}: it cannot fail, and is a dead letter")
        stored.check_counts({sent.tag for sent in events})
        _check_order(events, stored.ran)
        self._check_told(project_id, events, stored.ran)

    def _check_told(self, project_id: int, events: list[Sent], ran: dict[str, list[int]]) -> None:
        told = self.told.get(project_id, [])
        for tag, count in told:
            if count not in ran.get(tag, []):
                raise LedgerError(f"{tag}: its message says number {count}, it ran {ran.get(tag)}")
        for sent in events:
            if TELL in sent.wishes:
                missing = {(sent.tag, count) for count in ran.get(sent.tag, [])} - set(told)
                if missing:
                    raise LedgerError(f"{sent.tag}: its message was not delivered")


class _Stored:
    """The content of a store: the counts at which each event ran, dead letters, history."""

    def __init__(self, folder: Path) -> None:
        self.ran: dict[str, list[int]] = {}
        self.count = 0
        self.letters: list[str] = []  # event ids
        self.blamed: list[str] = []  # events that are regarded as the cause of their worker's death
        self.history: list[str] = []
        reader = ProjectStoreReader.open_if_exists(folder)
        if reader is None:
            return
        try:
            self._read(reader)
        finally:
            reader.close()

    def _read(self, reader: ProjectStoreReader) -> None:
        for key, value in all_pairs(reader):
            if key == COUNT:
                self.count = int(value)
            elif key.startswith(b"e:"):
                self.ran[key[2:].decode()] = [int(part) for part in value.split(b",")]
        letters, _ = reader.dead_letters(None, APPLET_LETTERS)
        self.letters = [numbered.letter.event_id for numbered in letters]
        self.blamed = [n.letter.event_id for n in letters if n.letter.reason == PROCESS_DIED]

    def check_counts(self, known: set[str]) -> None:
        numbers = sorted(number for ran in self.ran.values() for number in ran)
        if numbers != list(range(1, self.count + 1)):
            raise LedgerError(f"the count is {self.count}, and these events counted: {numbers}")
        never_sent = (set(self.ran) | set(self.letters)) - known
        if never_sent:
            raise LedgerError(f"events ran that nobody sent: {sorted(never_sent)}")


def all_pairs(reader: ProjectStoreReader) -> list[tuple[bytes, bytes]]:
    """Return all keys of all applets, without their owner."""
    with reader._environment.begin(db=reader._kv) as txn:
        return [(kv.own_key(bytes(key)), bytes(value)) for key, value in txn.cursor()]


def _check_event(sent: Sent, ran: list[int], letters: int) -> None:
    tag = sent.tag
    happened = len(ran) + letters
    if sent.code is not None and not happened:
        raise LedgerError(f"{tag}: acknowledged as number {sent.code}, and lost")
    if sent.code and sent.code not in ran:
        raise LedgerError(f"{tag}: acknowledged as number {sent.code}, and ran as {ran}")
    if sent.dead and not letters:
        raise LedgerError(f"{tag}: acknowledged as failed, and is no dead letter")
    most = 1 if sent.repeats else sent.sendings - sent.refused
    if happened > most and not sent.may_double:
        raise LedgerError(f"{tag}: it happened {happened} times instead of {most} (ran as {ran})")
    if sent.repeats and sent.settled and not happened and not sent.gone:
        raise LedgerError(f"{tag}: it was repeated until it was answered, and did not happen")


def _check_order(events: list[Sent], ran: dict[str, list[int]]) -> None:
    last: dict[str, tuple[int, str]] = {}
    for sent in sorted(events, key=lambda sent: sent.place):
        for number in ran.get(sent.tag, [])[:1]:
            before, tag = last.get(sent.line, (0, ""))
            if number < before:
                raise LedgerError(
                    f"{sent.tag} ran as number {number}, after {tag}, which was sent before it "
                    f"and ran as number {before}"
                )
            last[sent.line] = number, sent.tag
