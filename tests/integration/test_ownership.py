"""Objects of another account are answered as not existing, except for administrators."""

from __future__ import annotations

from tests.support.management import (
    LOG_WAT,
    PLAIN_WAT,
    User,
    wasm,
)


def test_somebody_elses_object_is_one_that_does_not_exist(ada: User, bob: User) -> None:
    ada.project()
    applet = ada.applet()
    publisher = ada("POST", "/publisher/NftMinter", {"name": "n", "key": "k"}).json
    bob.project("other")
    own = bob.applet("other")
    applet_id, instance_id = applet["appletID"], applet["instance"]["instanceID"]
    strategy_id, resource_id = applet["strategies"][0]["strategyID"], applet["resourceID"]
    rule = {"appletID": own["appletID"], "eventType": "A", "handler": "start"}
    body = {"name": "m", "key": "m"}
    named = [
        ("GET", "/project/NftMinter", None),
        ("DELETE", "/project/NftMinter", None),
        ("GET", "/applet/NftMinter", None),
        ("GET", f"/applet/NftMinter/{applet_id}", None),
        ("POST", "/publisher/NftMinter", body),
        ("GET", "/publisher/NftMinter", None),
        ("PUT", f"/publisher/NftMinter/{publisher['publisherID']}", body),
        ("DELETE", f"/publisher/NftMinter?publisherID={publisher['publisherID']}", None),
        ("POST", "/strategy/NftMinter", {"strategies": [rule]}),
        ("GET", "/strategy/NftMinter", None),
        ("GET", f"/strategy/NftMinter/{strategy_id}", None),
        ("PUT", f"/strategy/NftMinter/{strategy_id}", rule),
        ("DELETE", f"/strategy/NftMinter?strategyID={strategy_id}", None),
        ("GET", "/applet_log/NftMinter", None),
        ("GET", f"/kv/NftMinter?appletID={applet_id}", None),
    ]
    for method, path, sent in named:
        assert bob(method, path, sent).key == "ProjectNotFound", path
    info = {"appletName": "x"}
    upload = bob.upload("POST", "/applet/NftMinter", wasm(LOG_WAT), info)
    assert upload.key == "ProjectNotFound"
    assert bob.upload("PUT", f"/applet/{applet_id}", None, info).key == "AppletNotFound"
    assert bob("DELETE", f"/applet/{applet_id}").key == "AppletNotFound"
    assert bob("GET", f"/deploy/applet/{applet_id}").key == "AppletNotFound"
    assert bob("GET", f"/deploy/instance/{instance_id}").key == "InstanceNotFound"
    assert bob("PUT", f"/deploy/{instance_id}/STOP").key == "InstanceNotFound"
    assert bob("GET", f"/resource/data/{resource_id}").key == "ResourcePermNotFound"
    assert bob("DELETE", f"/resource/{resource_id}").key == "ResourcePermNotFound"
    assert [row["resourceID"] for row in bob("GET", "/resource").json["data"]] == [
        own["resourceID"]
    ]
    assert [row["projectName"] for row in bob("GET", "/project").json["data"]] == ["other"]
    # He cannot reach her objects through his own project either.
    for method, path, sent, key in [
        ("GET", f"/applet/other/{applet_id}", None, "AppletNotFound"),
        ("GET", f"/strategy/other/{strategy_id}", None, "StrategyNotFound"),
        ("PUT", f"/strategy/other/{strategy_id}", rule, "StrategyNotFound"),
        ("PUT", f"/publisher/other/{publisher['publisherID']}", body, "PublisherNotFound"),
        ("GET", f"/kv/other?appletID={applet_id}", None, "AppletNotFound"),
        (
            "POST",
            "/strategy/other",
            {"strategies": [{**rule, "appletID": applet_id}]},
            "AppletNotFound",
        ),
    ]:
        assert bob(method, path, sent).key == key, path
    bob("DELETE", f"/strategy/other?strategyID={strategy_id}")
    bob("DELETE", f"/publisher/other?publisherID={publisher['publisherID']}")
    assert ada("GET", f"/strategy/NftMinter/{strategy_id}").status == 200
    assert ada("GET", "/publisher/NftMinter").json["total"] == 1


def test_an_administrator_may_manage_what_is_somebody_elses(ada: User, root: User) -> None:
    ada.project()
    applet = ada.applet()
    assert root("GET", "/project/NftMinter").status == 200
    assert root("GET", f"/applet/NftMinter/{applet['appletID']}").status == 200
    assert root("PUT", f"/deploy/{applet['instance']['instanceID']}/STOP").status == 204
    assert root("GET", f"/resource/data/{applet['resourceID']}").status == 200
    theirs = root.upload("POST", "/applet/NftMinter", wasm(PLAIN_WAT), {"appletName": "b"}).json
    owned = {row["resourceID"] for row in ada("GET", "/resource").json["data"]}
    assert theirs["resourceID"] in owned
    assert root("GET", "/project").json["total"] == 0
    assert root("DELETE", "/project/NftMinter").status == 204
