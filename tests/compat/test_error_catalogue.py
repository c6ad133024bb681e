"""Keys, numbers and messages of errors as clients of the later generation know them.

Source: interface document, 9.1.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from fieldbrook.core import errors
from fieldbrook.core.errors import NodeError

# By status: the number and the key; the message where it is not the key in words.
CATALOGUE = {
    400: {
        5: ("InvalidCronExpressions", ""),
        6: ("InvalidPrivateKey", ""),
        9: ("InvalidContractLogIDs", ""),
        10: ("InvalidChainTxIDs", ""),
        11: ("InvalidChainHeightIDs", ""),
    },
    401: {
        1: ("Unauthorized", "unauthorized"),
        2: ("InvalidAuthValue", ""),
        3: ("InvalidAuthAccountID", ""),
        4: ("NoProjectPermission", ""),
        5: ("NoOperatorPermission", ""),
        6: ("NoAdminPermission", ""),
        7: ("InvalidOldPassword", ""),
        8: ("InvalidNewPassword", ""),
        9: ("InvalidPassword", ""),
        10: ("InvalidEthLoginSignature", "Invalid Siwe Signature"),
        11: ("InvalidEthLoginMessage", "Invalid Siwe Message"),
        12: ("InvalidAuthPublisherID", ""),
        14: ("InvalidEventChannel", ""),
        15: ("InvalidEventToken", ""),
        18: ("InvalidAccessKey", "Invalid Account Access Key"),
    },
    403: {
        2: ("DisabledAccount", ""),
        3: ("WhiteListForbidden", ""),
        4: ("UploadFileSizeLimit", ""),
        5: ("UploadFileMd5Unmatched", ""),
        6: ("UploadFileDiskLimit", ""),
        8: ("OccupiedOperator", ""),
        9: ("UnsupportedFSOperator", "Unsupported FileSystem Operator"),
        10: ("AccessKeyExpired", "Account Access Key Expired"),
        11: ("AccessKeyPermissionDenied", ""),
    },
    404: {
        1: ("NotFound", "NotFound"),
        2: ("ProjectNotFound", ""),
        3: ("ConfigNotFound", ""),
        4: ("ResourceNotFound", ""),
        5: ("AppletNotFound", ""),
        6: ("InstanceNotFound", ""),
        7: ("StrategyNotFound", ""),
        8: ("PublisherNotFound", ""),
        9: ("AccountIdentityNotFound", ""),
        10: ("ResourcePermNotFound", ""),
        11: ("CronJobNotFound", ""),
        13: ("BlockchainNotFound", ""),
        14: ("ContractLogNotFound", ""),
        15: ("ChainTxNotFound", ""),
        16: ("ChainHeightNotFound", ""),
        17: ("AccountNotFound", ""),
        19: ("OperatorNotFound", ""),
        20: ("TrafficLimitNotFound", ""),
        21: ("ProjectOperatorNotFound", "Project Operator relationship Not Found"),
        22: ("AccessKeyNotFound", "Account Key Not Found"),
    },
    409: {
        1: ("Conflict", "Conflict conflict error"),
        2: ("ProjectNameConflict", ""),
        5: ("StrategyConflict", ""),
        7: ("PublisherConflict", ""),
        9: ("AppletNameConflict", ""),
        10: ("CronJobConflict", ""),
        11: ("ContractLogConflict", ""),
        12: ("ChainTxConflict", ""),
        13: ("ChainHeightConflict", ""),
        14: ("AccountIdentityConflict", ""),
        17: ("OperatorConflict", ""),
        18: ("TrafficLimitConflict", ""),
        19: ("ProjectOperatorConflict", "Project Operator relationship Conflict"),
        20: ("AccessKeyNameConflict", ""),
    },
    500: {
        1: ("InternalServerError", "internal error"),
        2: ("DatabaseError", ""),
        3: ("UploadFileFailed", ""),
        8: ("CreateInstanceFailed", ""),
    },
}
SHY = {"InternalServerError", "Unauthorized"}  # not for end users


def classes(kind: type[NodeError] = NodeError) -> Iterator[type[NodeError]]:
    yield kind
    for below in kind.__subclasses__():
        yield from classes(below)


def in_words(key: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", key)


@pytest.mark.parametrize(
    ("status", "number", "key", "msg"),
    [
        (status, number, key, msg or in_words(key))
        for status, rows in CATALOGUE.items()
        for number, (key, msg) in rows.items()
    ],
)
def test_an_error_of_the_catalogue_has_its_number_and_its_message(
    status: int, number: int, key: str, msg: str
) -> None:
    found = [kind for kind in classes() if kind.key == key and "key" in vars(kind)]
    assert found, f"{errors.__name__} has no {key}"
    for kind in found:
        assert (kind.status, kind.number, kind.msg) == (status, number, msg)
        assert kind.can_be_talk is (key not in SHY)
