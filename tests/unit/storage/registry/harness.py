"""A registry whose commands are encoded like between processes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fieldbrook.core.model import ADMIN, Account, Project
from fieldbrook.storage.registry.service import (
    Deployed,
    Module,
    RegistryWriter,
    decode_result,
    encode_result,
    execute,
)

KEY = b"k" * 32
MAP = 16 << 20
MODULE = Module("log.wasm", "ab" * 32, "cd" * 16, 100, ["start", "mint"])
OTHER_MODULE = Module("two.wasm", "12" * 32, "34" * 16, 200, ["start"])


class Registry:
    """A writer whose commands are encoded like between processes, and a settable clock."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.now_ms = 1_800_000_000_000
        self._open()

    def _open(self) -> None:
        self.writer = RegistryWriter(self.path, MAP, lambda: self.now_ms, KEY)
        self.reader = self.writer.reader()

    def reopen(self) -> None:
        self.writer.close()
        self._open()

    def __call__(self, op: str, **args: Any) -> Any:
        return decode_result(op, encode_result(execute(self.writer, op, args)))

    def account(self, username: str = "ada", role: str = ADMIN) -> Account:
        created = self("create_account", username=username, password_hash="h", role=role)
        assert isinstance(created, Account)
        return created

    def project(self, name: str = "NftMinter", account_id: int | None = None) -> Project:
        if account_id is None:
            account = self.reader.account_named("ada") or self.account()
            account_id = account.account_id
        created = self("create_project", account_id=account_id, name=name)
        assert isinstance(created, Project)
        return created

    def applet(
        self,
        project: Project,
        name: str = "log",
        module: Module = MODULE,
        strategies: tuple[tuple[str, str], ...] = (("DEFAULT", "start"),),
    ) -> Deployed:
        created = self(
            "create_applet",
            project_id=project.project_id,
            account_id=project.account_id,
            name=name,
            wasm_name="log.wasm",
            filename=module.filename,
            sha256=module.sha256,
            md5=module.md5,
            size=module.size,
            handlers=module.handlers,
            strategies=strategies,
        )
        assert isinstance(created, Deployed)
        return created


def fields_of(module: Module) -> list[Any]:
    """Return a module in the form of a command's arguments."""
    return [module.filename, module.sha256, module.md5, module.size, module.handlers]
