"""A node without a cluster reports this, and runs no processes for one."""

from __future__ import annotations

from tests.support.nodes import StartNode


def test_a_node_that_runs_alone_has_no_hosts_and_no_engine(start_node: StartNode) -> None:
    node = start_node()
    for method, path in (("GET", "/cluster"), ("POST", "/cluster/invitation")):
        answer = node.call(method, path)
        assert answer.status == 404
        assert "in no cluster" in answer.json["desc"]
    assert not (node.data / "cluster").exists()
    assert not (node.data / "run" / "engine").exists()
