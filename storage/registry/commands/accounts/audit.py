"""The audit log: the command that adds rows for calls without a change of the registry."""

from __future__ import annotations

from collections.abc import Sequence

from fieldbrook.storage.registry.audit import AuditRow, append
from fieldbrook.storage.registry.commands.change import Commands, command


class AuditCommands(Commands):
    """Commands on the audit log. Changes of the registry write their rows themselves."""

    @command
    def add_audit_rows(self, rows: Sequence[AuditRow]) -> int:
        """Add rows about calls that changed nothing in the registry; return their number.

        The change counter stays as it is.
        """
        with self.change(uses_reserve=True) as change:
            for row in rows:
                append(change.txn, self.tables.audit, row, self.audit_rows)
            return len(rows)
