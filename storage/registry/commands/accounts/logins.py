"""Logins: the command that ends a single one before its tokens expire."""

from __future__ import annotations

from fieldbrook.core.errors import TooManyRequestsError
from fieldbrook.storage.lmdb.ids import from_key, to_key
from fieldbrook.storage.registry.commands.change import Commands, command
from fieldbrook.storage.registry.tables import login_key

_REMEMBERED = 100_000


class LoginCommands(Commands):
    """Commands on single logins. `AccountCommands.end_logins` ends all of an account."""

    @command
    def end_login(self, login_id: str, began_s: int, valid_until: int) -> None:
        """Make all tokens of one login invalid.

        The login is stored until `valid_until` (Unix milliseconds), when the last of its tokens
        has expired.

        Raises:
            TooManyRequestsError: the table of ended logins is full.
        """
        ended = self.tables.ended_logins
        with self.change(uses_reserve=True) as change:
            with change.txn.cursor(ended) as cursor:
                # The rows are in the order in which the logins began; they expire in nearly the
                # same order.
                more = cursor.first()
                while more and from_key(cursor.value()) <= change.time_ms:
                    more = cursor.delete()
            if change.txn.stat(ended)["entries"] >= _REMEMBERED:
                raise TooManyRequestsError(what="the table of ended logins is full: end all yours")
            change.txn.put(login_key(login_id, began_s), to_key(valid_until), db=ended)
            change.mark_changed()
