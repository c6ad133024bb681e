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

    key = "InvalidToken"
    number = 2
    msg = "Invalid Token"
    can_be_talk = True


class InvalidAuthAccountIDError(AuthorizationError):
    key = "InvalidAuthAccountID"
    number = 3
    msg = "Invalid Auth Account ID"
    can_be_talk = True


class InvalidAuthValueError(AuthorizationError):
    """The token is genuine, but of a kind that this request does not accept."""

    key = "InvalidAuthValue"
    number = 2
    msg = "Invalid Auth Value"
    can_be_talk = True


class InvalidAccessKeyError(AuthorizationError):
    """The access key is malformed, or does not match the stored key. Never carries the key."""

    key = "InvalidAccessKey"
    number = 18
    msg = "Invalid Account Access Key"
    can_be_talk = True


class OccupiedOperatorError(NodeError):
    """The operator is in use and cannot be removed."""

    key = "OccupiedOperator"
    status = 403
    number = 8
    msg = "Occupied Operator"
    template = "operator {operator} cannot be removed: {reason}"


class AccessKeyExpiredError(NodeError):
    key = "AccessKeyExpired"
    status = 403
    number = 10
    msg = "Account Access Key Expired"
    template = "access key {name} has expired; create a new one"


class AccessKeyPermissionDeniedError(NodeError):
    """The access key lacks the permission on the group that the operation belongs to."""

    key = "AccessKeyPermissionDenied"
    status = 403
    number = 11
    msg = "Access Key Permission Denied"
    template = "{operation} needs {needed} on {group}; the access key has {granted}"


class PublisherTokenError(AuthorizationError):
    """The token in the header is not the token of the publisher in the header. Never carries the
    token."""

    key = "InvalidEventToken"
    number = 15
    msg = "Invalid Event Token"
    can_be_talk = True
    template = "publisher {pub_id} of project {project}: {reason}"


class InvalidAuthPublisherIDError(AuthorizationError):
    """The token is genuine, but the request needs the token of a publisher."""

    key = "InvalidAuthPublisherID"
    number = 12
    msg = "Invalid Auth Publisher ID"
    can_be_talk = True


class InvalidEventChannelError(AuthorizationError):
    """The channel belongs to another project than the token."""

    key = "InvalidEventChannel"
    number = 14
    msg = "Invalid Event Channel"
    can_be_talk = True
    template = "publisher {pub_id} does not belong to channel {channel}"


class NoProjectPermissionError(NodeError):
    key = "NoProjectPermission"
    status = 401
    number = 4
    msg = "No Project Permission"
    template = "the account does not own project {name}"


class NoOperatorPermissionError(NodeError):
    """The operator belongs to another account than the project."""

    key = "NoOperatorPermission"
    status = 401
    number = 5
    msg = "No Operator Permission"
    template = "operator {operator} belongs to another account than the project"


class NoAdminPermissionError(NodeError):
    key = "NoAdminPermission"
    status = 401
    number = 6
    msg = "No Admin Permission"
    template = "{reason}"


class InvalidOldPasswordError(NodeError):
    """The old password is wrong."""

    key = "InvalidOldPassword"
    status = 401
    number = 7
    msg = "Invalid Old Password"


class InvalidNewPasswordError(NodeError):
    """The new password is the same as the old one."""

    key = "InvalidNewPassword"
    status = 401
    number = 8
    msg = "Invalid New Password"


class InvalidPasswordError(NodeError):
    """The password is wrong."""

    key = "InvalidPassword"
    status = 401
    number = 9
    msg = "Invalid Password"


class InvalidEthLoginSignatureError(NodeError):
    key = "InvalidEthLoginSignature"
    status = 401
    number = 10
    msg = "Invalid Siwe Signature"
    template = "{reason}"


class InvalidEthLoginMessageError(NodeError):
    key = "InvalidEthLoginMessage"
    status = 401
    number = 11
    msg = "Invalid Siwe Message"
    template = "{reason}"


class WhiteListForbiddenError(NodeError):
    """This wallet may not sign in: it is not in the setting `wallet_whitelist`, or that is empty
    and the wallet has no account."""

    key = "WhiteListForbidden"
    status = 403
    number = 3
    msg = "White List Forbidden"
    template = "the wallet {address} may not sign in (setting wallet_whitelist)"


class DisabledAccountError(NodeError):
    key = "DisabledAccount"
    status = 403
    number = 2
    msg = "Disabled Account"
    template = "account {account} is disabled; ask an administrator to enable it"
