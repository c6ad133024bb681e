"""The client is not authenticated, or is not allowed to do this (401, 403)."""

from __future__ import annotations

from fieldbrook.core.errors.base import NodeError


class AuthorizationError(NodeError):
    """The caller is not authenticated, or is not the identity that the request needs."""

    key = "Unauthorized"
    status = 401
    msg = "unauthorized"
    can_be_talk = False
    template = "{reason}"


class InvalidTokenError(AuthorizationError):
    """A token is absent, malformed, expired or not signed by this node."""

    number = 2
    can_be_talk = True


class InvalidAuthAccountIDError(AuthorizationError):
    number = 3
    can_be_talk = True


class InvalidAuthValueError(AuthorizationError):
    """The token is genuine, but of a kind that this request does not accept."""

    number = 2
    can_be_talk = True


class InvalidAccessKeyError(AuthorizationError):
    """The access key is malformed, or does not match the stored key. The error never contains the
    key."""

    number = 18
    msg = "Invalid Account Access Key"
    can_be_talk = True


class OccupiedOperatorError(NodeError):
    """The operator is in use and cannot be removed."""

    status = 403
    number = 8
    template = "operator {operator} cannot be removed: {reason}"


class AccessKeyExpiredError(NodeError):
    status = 403
    number = 10
    msg = "Account Access Key Expired"
    template = "access key {name} has expired; create a new one"


class AccessKeyPermissionDeniedError(NodeError):
    """The access key lacks the permission on the group that the operation belongs to."""

    status = 403
    number = 11
    template = "{operation} needs {needed} on {group}; the access key has {granted}"


class PublisherTokenError(AuthorizationError):
    """The token in the header is not the token of the publisher in the header. The error never
    contains the token."""

    key = "InvalidEventToken"
    number = 15
    can_be_talk = True
    template = "publisher {pub_id} of project {project}: {reason}"


class InvalidAuthPublisherIDError(AuthorizationError):
    """The token is genuine, but the request needs the token of a publisher."""

    number = 12
    can_be_talk = True


class InvalidEventChannelError(AuthorizationError):
    """The channel belongs to another project than the token."""

    number = 14
    can_be_talk = True
    template = "publisher {pub_id} does not belong to channel {channel}"


class NoProjectPermissionError(NodeError):
    status = 401
    number = 4
    template = "the account does not own project {name}"


class NoOperatorPermissionError(NodeError):
    """The operator belongs to another account than the project."""

    status = 401
    number = 5
    template = "operator {operator} belongs to another account than the project"


class NoAdminPermissionError(NodeError):
    status = 401
    number = 6
    template = "{reason}"


class InvalidOldPasswordError(NodeError):
    """The old password is wrong."""

    status = 401
    number = 7


class InvalidNewPasswordError(NodeError):
    """The new password is the same as the old one."""

    status = 401
    number = 8


class InvalidPasswordError(NodeError):
    """The password is wrong."""

    status = 401
    number = 9


class InvalidEthLoginSignatureError(NodeError):
    status = 401
    number = 10
    msg = "Invalid Siwe Signature"
    template = "{reason}"


class InvalidEthLoginMessageError(NodeError):
    status = 401
    number = 11
    msg = "Invalid Siwe Message"
    template = "{reason}"


class WhiteListForbiddenError(NodeError):
    """This wallet may not sign in: it is not in the setting `wallet_whitelist`, or that is empty
    and the wallet has no account."""

    status = 403
    number = 3
    template = "the wallet {address} may not sign in (setting wallet_whitelist)"


class DisabledAccountError(NodeError):
    status = 403
    number = 2
    template = "account {account} is disabled; ask an administrator to enable it"
