"""The owners of keys."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fieldbrook.core.model import Applet
from fieldbrook.storage.lmdb.ids import LIMIT
from fieldbrook.storage.project import kv


def applet(applet_id: int, prefix: str = "") -> Applet:
    return Applet(
        applet_id=applet_id,
        project_id=1,
        resource_id=2,
        name="a",
        wasm_name="a.wasm",
        instance_id=3,
        sha256="00" * 32,
        cache_prefix=prefix,
        created_at=0,
        updated_at=0,
    )


ids, prefixes = st.integers(1, LIMIT - 1), st.text(min_size=1, max_size=256)


@given(ids, ids, prefixes, prefixes)
def test_applets_share_their_keys_with_those_of_the_same_prefix_and_no_others(
    one: int, two: int, prefix: str, other: str
) -> None:
    assert kv.owner(applet(one)) == one
    shared = kv.owner(applet(one, prefix))
    assert shared == kv.owner(applet(two, prefix))
    assert shared not in (one, two)
    assert (shared == kv.owner(applet(one, other))) == (prefix == other)
    assert len(kv.scope(shared)) == len(kv.scope(one)) == 8
