"""Monitors of chains: commands that create, pause and remove them."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from fieldbrook.core import quotas
from fieldbrook.core.errors import (
    ChainHeightConflictError,
    ChainHeightNotFoundError,
    ChainTxConflictError,
    ChainTxNotFoundError,
    ConflictError,
    ContractAbiConflictError,
    ContractAbiLimitError,
    ContractLogConflictError,
    ContractLogNotFoundError,
    InvalidChainHeightIDsError,
    InvalidChainTxIDsError,
    InvalidContractLogIDsError,
    InvalidMonitorIDsError,
    NotFoundError,
)
from fieldbrook.core.model import CHAIN_HEIGHT, CHAIN_TX, CONTRACT_LOG, ContractAbi, Monitor
from fieldbrook.storage.registry.commands.change import Change, Commands, command
from fieldbrook.storage.registry.tables import monitor_rule

_CONFLICTS: dict[str, type[ConflictError]] = {
    CONTRACT_LOG: ContractLogConflictError,
    CHAIN_TX: ChainTxConflictError,
    CHAIN_HEIGHT: ChainHeightConflictError,
}
NOT_FOUND: dict[str, type[NotFoundError]] = {
    CONTRACT_LOG: ContractLogNotFoundError,
    CHAIN_TX: ChainTxNotFoundError,
    CHAIN_HEIGHT: ChainHeightNotFoundError,
}
INVALID_IDS: dict[str, type[InvalidMonitorIDsError]] = {
    CONTRACT_LOG: InvalidContractLogIDsError,
    CHAIN_TX: InvalidChainTxIDsError,
    CHAIN_HEIGHT: InvalidChainHeightIDsError,
}


class MonitorCommands(Commands):
    """Commands on monitors and contract ABIs."""

    @command
    def create_contract_abi(
        self, project_id: int, name: str, content: bytes, limit: int
    ) -> ContractAbi:
        """Store an ABI, unless the project has `limit` of them already.

        Raises:
            ProjectNotFoundError: no such project.
            ContractAbiConflictError: the project has an ABI of that name.
            ContractAbiLimitError: the project has `limit` ABIs already.
            QuotaExceededError: the account has as many as its quota allows.
        """
        with self.change() as change:
            project = change.project(project_id)
            if change.now.contract_abi(project_id, name) is not None:
                raise ContractAbiConflictError(what=f"[prj: {project.name}] [abi: {name}]")
            if len(change.now.contract_abis(project_id)) >= limit:
                raise ContractAbiLimitError(project=project.name, limit=limit)
            change.require_quota(project.account_id, quotas.ABIS)
            return change.add(
                self.tables.contract_abis,
                ContractAbi(
                    abi_id=change.new_id(),
                    project_id=project_id,
                    name=name,
                    content=content,
                ),
            )

    @command
    def remove_contract_abi(self, abi_id: int) -> None:
        """Remove an ABI, if it still exists."""
        with self.change() as change:
            abi = self.tables.contract_abis.get(change.txn, abi_id)
            if abi is not None:
                change.remove(self.tables.contract_abis, abi)

    @command
    def create_monitor(
        self,
        project_id: int,
        kind: str,
        chain_id: int,
        event_type: str,
        chain_name: str = "",
        address: str = "",
        topics: Sequence[str] = (),
        block_start: int = 0,
        block_end: int = 0,
        tx_hash: str = "",
        height: int = 0,
        paused: bool = False,
        event: str = "",
        event_abi: str = "",
        abi_name: str = "",
    ) -> Monitor:
        """Create a monitor; see `model.Monitor` for what each kind needs.

        Raises:
            ProjectNotFoundError: no such project.
            ConflictError: the project has an equal monitor that is not finished; the class
                depends on the kind.
            QuotaExceededError: the account has as many monitors as its quota allows.
        """
        with self.change() as change:
            project = change.project(project_id)
            monitor = Monitor(
                monitor_id=change.new_id(),
                project_id=project_id,
                kind=kind,
                chain_id=chain_id,
                event_type=event_type,
                chain_name=chain_name,
                address=address,
                topics=list(topics),
                block_start=block_start,
                block_end=block_end,
                block_current=block_start,
                tx_hash=tx_hash,
                height=height,
                paused=paused,
                event=event,
                event_abi=event_abi,
                abi_name=abi_name,
            )
            self._refuse_same(change, monitor)
            change.require_quota(project.account_id, quotas.MONITORS)
            return change.add(self.tables.monitors, monitor)

    @command
    def rewind_monitor(self, monitor_id: int, block_start: int) -> Monitor:
        """Replace a monitor of contract logs by an equal one that begins at another block.

        The new monitor has an id of its own, so the events of its logs are new events.

        Raises:
            ContractLogNotFoundError: no such monitor of contract logs.
            ContractLogConflictError: the project has another monitor that is equal to the new one.
        """
        with self.change() as change:
            old = change.now.monitor(monitor_id)
            if old is None or old.kind != CONTRACT_LOG:
                raise ContractLogNotFoundError(monitor=monitor_id)
            monitor = msgspec.structs.replace(
                old,
                monitor_id=change.new_id(),
                block_start=block_start,
                block_current=block_start,
                finished=False,
            )
            change.remove(self.tables.monitors, old)
            self._refuse_same(change, monitor)
            return change.add(self.tables.monitors, monitor)

    def _refuse_same(self, change: Change, monitor: Monitor) -> None:
        """Raise the error of the monitor's kind if its project has an equal, unfinished one."""
        same = self.tables.monitors.find(change.txn, "monitor_rules", monitor_rule(monitor))
        if same is not None:
            raise _CONFLICTS[monitor.kind](what=f"monitor {same.monitor_id} is the same")

    @command
    def pause_monitors(
        self, project_id: int, kind: str, monitor_ids: Sequence[int], paused: bool
    ) -> int:
        """Pause or start all given monitors or none; return their number.

        Raises:
            InvalidMonitorIDsError: an id is not a monitor of this kind in the project; the
                class depends on the kind.
        """
        with self.change() as change:
            found = {n: change.now.monitor(n) for n in monitor_ids}
            own = [m for m in found.values() if m and (m.project_id, m.kind) == (project_id, kind)]
            if len(own) < len(found):
                strange = found.keys() - {monitor.monitor_id for monitor in own}
                ids = ", ".join(str(n) for n in sorted(strange))
                raise INVALID_IDS[kind](reason=f"the project has no such monitors: {ids}")
            for monitor in own:
                change.update(self.tables.monitors, monitor, paused=paused)
            return len(own)

    @command
    def remove_monitor(self, monitor_id: int) -> Monitor:
        """Remove a monitor.

        Raises:
            NotFoundError: no such monitor.
        """
        with self.change() as change:
            monitor = change.now.monitor(monitor_id)
            if monitor is None:
                raise NotFoundError(what=f"monitor {monitor_id}")
            change.remove(self.tables.monitors, monitor)
            return monitor

    @command
    def finish_monitor(self, monitor_id: int, block_current: int) -> None:
        """Mark a monitor as finished, if it still exists; it sends no more events.

        The project may then create an equal monitor.
        """
        with self.change() as change:
            monitor = change.now.monitor(monitor_id)
            if monitor is not None:
                change.update(
                    self.tables.monitors, monitor, finished=True, block_current=block_current
                )
