"""Functions of the kernel beyond POSIX: an implementation for Linux and a portable one.

In: a process id, a descriptor, a socket.
Out: the same functions from `linux.py` or `portable.py`; callers do not depend on which.
Open first: `portable.py`, whose functions describe their limitations.

The portable implementation is for systems other than Linux. For tests, the variable
`FIELDBROOK_PORTABLE=1` chooses it on Linux, too.
"""

import os
import sys

PORTABLE_VARIABLE = "FIELDBROOK_PORTABLE"

is_portable = sys.platform != "linux" or os.environ.get(PORTABLE_VARIABLE, "") == "1"

if is_portable:
    from fieldbrook.system.kernel.portable import (
        BALANCES_PORTS,
        adopt_orphans,
        allocate,
        boot_id,
        cores,
        create_memory_file,
        die_with,
        die_with_parent,
        free_before,
        has_ended,
        hide_memory,
        is_memory_file,
        limit_unread,
        lost_descendants,
        map_large_blocks,
        name_process,
        parents,
        private_bytes,
        read_stat,
        sync_data,
        watch_deaths,
    )
else:
    from fieldbrook.system.kernel.linux import (
        BALANCES_PORTS,
        adopt_orphans,
        allocate,
        boot_id,
        cores,
        create_memory_file,
        die_with,
        die_with_parent,
        free_before,
        has_ended,
        hide_memory,
        is_memory_file,
        limit_unread,
        lost_descendants,
        map_large_blocks,
        name_process,
        parents,
        private_bytes,
        read_stat,
        sync_data,
        watch_deaths,
    )

__all__ = [
    "BALANCES_PORTS",
    "PORTABLE_VARIABLE",
    "adopt_orphans",
    "allocate",
    "boot_id",
    "cores",
    "create_memory_file",
    "die_with",
    "die_with_parent",
    "free_before",
    "has_ended",
    "hide_memory",
    "is_memory_file",
    "is_portable",
    "limit_unread",
    "lost_descendants",
    "map_large_blocks",
    "name_process",
    "parents",
    "private_bytes",
    "read_stat",
    "sync_data",
    "watch_deaths",
]
