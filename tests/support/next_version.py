"""The command line of a version to come, in which each kind of store has a later schema.

    python -m tests.support.next_version --data DATA upgrade --check

Its migrations add a table to each store. Commands that open stores for other purposes do not work,
because the code that reads them is that of this version.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from fieldbrook.storage import stores

if TYPE_CHECKING:
    import lmdb

    Transaction = lmdb.Transaction[bytes]

TABLE = b"added"


def add(environment: lmdb.Environment, txn: Transaction) -> None:
    """Count the calls of this migration, in a table of its own."""
    table = environment.open_db(TABLE, txn=txn)
    txn.put(b"n", txn.get(b"n", b"", db=table) + b"x", db=table)


def newer(form: stores.Form, by: int = 1) -> stores.Form:
    """Return a kind of store with a later schema, and the migrations to it."""
    migrations = {form.schema + n: add for n in range(by)}
    return form._replace(schema=form.schema + by, migrations=migrations)


NEXT = stores.Forms(*map(newer, stores.FORMS))


if __name__ == "__main__":
    # This comes before all other imports, because functions have it as the default of an argument.
    stores.FORMS = NEXT
    from fieldbrook.cli.main import run

    sys.exit(run(sys.argv[1:]))
