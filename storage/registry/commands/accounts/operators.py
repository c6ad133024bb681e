"""Operators: commands that create, remove and bind them to projects."""

from __future__ import annotations

from typing import NamedTuple

from fieldbrook.core import quotas
from fieldbrook.core.errors import (
    NoOperatorPermissionError,
    OccupiedOperatorError,
    OperatorConflictError,
    OperatorNotFoundError,
    ProjectOperatorConflictError,
)
from fieldbrook.core.model import Operator, ProjectOperator
from fieldbrook.security.operator_keys import DEFAULT_OPERATOR
from fieldbrook.storage.registry.commands.change import Change, Commands, command


class OperatorDraft(NamedTuple):
    """A new operator from the gateway, with keys that are already sealed."""

    name: str
    kind: int
    address: str
    sealed_key: bytes
    sealed_paymaster: bytes = b""


def add_operator(change: Change, account_id: int, draft: OperatorDraft) -> Operator:
    """Add a new operator within a change.

    Raises:
        OperatorConflictError: the account has an operator of that name.
    """
    if change.now.operator_named(account_id, draft.name):
        raise OperatorConflictError(what=f"operator {draft.name}")
    return change.add(
        change.tables.operators,
        Operator(
            operator_id=change.new_id(),
            account_id=account_id,
            name=draft.name,
            kind=draft.kind,
            address=draft.address,
            sealed_key=draft.sealed_key,
            sealed_paymaster=draft.sealed_paymaster,
        ),
    )


class OperatorCommands(Commands):
    """Commands on operators."""

    @command
    def create_operator(
        self, account_id: int, draft: OperatorDraft, unless_exists: bool = False
    ) -> Operator:
        """Create an operator; with `unless_exists`, return an existing one of that name instead.

        Raises:
            AccountNotFoundError: no such account.
            OperatorConflictError: the account has an operator of that name.
            QuotaExceededError: the account has as many operators as its quota allows.
        """
        with self.change() as change:
            change.account(account_id)
            found = change.now.operator_named(account_id, draft.name)
            if found is not None and unless_exists:
                return found
            if draft.name != DEFAULT_OPERATOR:  # the node itself creates one for each account
                change.require_quota(account_id, quotas.OPERATORS)
            return add_operator(change, account_id, draft)

    @command
    def remove_operator(self, operator_id: int) -> Operator:
        """Remove an operator and its key, for good.

        Raises:
            OperatorNotFoundError: no such operator.
            OccupiedOperatorError: a project uses it, or it is the account's default.
        """
        with self.change() as change:
            operator = self._operator(change, operator_id)
            if operator.name == DEFAULT_OPERATOR:
                raise OccupiedOperatorError(
                    operator=operator_id, reason="projects without another one use it"
                )
            users = change.now.projects_of_operator(operator_id)
            if users:
                raise OccupiedOperatorError(
                    operator=operator_id, reason=f"project {users[0].project_id} uses it"
                )
            change.remove(self.tables.operators, operator)
            return operator

    @command
    def bind_operator(
        self, project_id: int, operator_id: int, replace: bool = False
    ) -> ProjectOperator:
        """Bind a project to an operator of its account.

        With `replace` it replaces another operator in one step, so that no event in between uses
        the account's default operator.

        Raises:
            ProjectNotFoundError, OperatorNotFoundError: no such project or operator.
            NoOperatorPermissionError: the operator is another account's.
            ProjectOperatorConflictError: the project is already bound to an operator.
        """
        with self.change() as change:
            project = change.project(project_id)
            operator = self._operator(change, operator_id)
            if operator.account_id != project.account_id:
                raise NoOperatorPermissionError(operator=operator_id)
            bound = change.now.project_operator(project_id)
            if bound is not None and not replace:
                raise ProjectOperatorConflictError(what=f"project {project_id} has an operator")
            if bound is not None:
                return change.update(self.tables.project_operators, bound, operator_id=operator_id)
            return change.add(
                self.tables.project_operators,
                ProjectOperator(
                    project_id=project_id,
                    operator_id=operator_id,
                ),
            )

    @command
    def unbind_operator(self, project_id: int) -> bool:
        """Let a project use its account's default operator again.

        Returns:
            False if the project was not bound to an operator.
        """
        with self.change() as change:
            bound = change.now.project_operator(project_id)
            if bound is not None:
                change.remove(self.tables.project_operators, bound)
            return bound is not None

    def _operator(self, change: Change, operator_id: int) -> Operator:
        operator = change.now.operator(operator_id)
        if operator is None:
            raise OperatorNotFoundError(what=f"operator {operator_id}")
        return operator
