"""The audit log: the command that adds rows which no change carries."""

from __future__ import annotations

from collections.abc import Sequence

from fieldbrook.storage.registry.audit import AuditRow, append
from fieldbrook.storage.registry.commands.change import Commands, command


class AuditCommands(Commands):
    """Commands on the audit log. Changes write their rows themselves."""

    @command
    def note_audit(self, rows: Sequence[AuditRow]) -> int:
        """Add rows about calls that changed nothing here; how many. The counter stays."""
        with self.change() as change:
            for row in rows:
                append(change.txn, self.tables.audit, row, self.audit_rows)
            return len(rows)
