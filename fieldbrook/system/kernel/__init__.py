"""What the node asks a kernel for beyond POSIX, in the way of Linux or in a portable one.

In: a process id, a descriptor, a socket.
Out: the same functions from `linux.py` or `portable.py`; nothing else knows which.
Open first: `portable.py`, which says at each function what is less good.

The portable way is for systems that are not Linux. The variable `FIELDBROOK_PORTABLE=1` chooses it
on Linux, too, for tests.
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
