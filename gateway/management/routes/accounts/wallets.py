"""Signing in with a wallet."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import UNSET, UnsetType

from fieldbrook.core.clock import rfc3339
from fieldbrook.core.errors import InvalidEthLoginSignatureError, UnavailableError
from fieldbrook.gateway.management.framework.binding import json_key
from fieldbrook.gateway.management.framework.route import Auth, Call, Route
from fieldbrook.gateway.management.routes.accounts.logins import LoginReply, login_reply
from fieldbrook.gateway.management.routes.accounts.operators import default_draft
from fieldbrook.gateway.management.sign_in import wallet
from fieldbrook.security.operator_keys import eip55

Message = Annotated[str, msgspec.Meta(max_length=8_192)]
# A contract wallet may need the signatures of many owners, in one text.
Signature = Annotated[str, msgspec.Meta(max_length=16_384)]


class WalletLogin(msgspec.Struct, frozen=True, kw_only=True):
    """An EIP-4361 message and the wallet's signature over it."""

    message: Message
    signature: Signature


class NonceQuery(msgspec.Struct, frozen=True, kw_only=True):
    """The address that will sign, in any case."""

    address: Annotated[str, msgspec.Meta(pattern="^(0x[0-9A-Fa-f]{40})?$", max_length=42)] = ""


class WalletNonceReply(msgspec.Struct, frozen=True, kw_only=True, rename=json_key):
    """A nonce for one login with a wallet, valid until `expireAt`."""

    address: str | UnsetType = UNSET
    nonce: str
    expire_at: str


async def give_nonce(call: Call[None, NonceQuery]) -> WalletNonceReply:
    """A nonce for the message that a wallet signs; valid for one login within 5 minutes.

    With `address`, the answer also has the address with the capitals of EIP-55, as the message
    must state it: many wallets tell a page their address in lower case.
    """
    now_ms = call.context.clock()
    address = bytes.fromhex(call.query.address[2:])
    return WalletNonceReply(
        address=eip55(address) if address else UNSET,
        nonce=wallet.issue_nonce(call.context.token_key, now_ms),
        expire_at=rfc3339(now_ms + wallet.NONCE_LIFETIME_MS),
    )


async def login_by_wallet(call: Call[WalletLogin, None]) -> LoginReply:
    """Log in with a wallet's signature. The account is created if the settings allow it."""
    context, policy = call.context, call.context.wallets
    message = wallet.parse_message(call.body.message)
    stated = message.address.lower()
    call.throttle.attempt(stated, call.peer)
    known = context.reader.account_named(stated)
    if known is not None:
        call.audit_trail.set_account(known)
    now_ms = context.clock()
    wallet.require_valid_time(message, now_ms)
    wallet.require_domain(message, policy, call.host, context.is_own_host)
    once = wallet.replay_guard(message, policy, context.token_key, now_ms)
    try:
        address = await _require_signature(call, message)
    except UnavailableError:
        call.throttle.cancel(stated, call.peer)
        raise
    call.audit_trail.set_username(address)
    may_create = policy.may_create(address)
    account = await context.registry.call(
        "sign_in_wallet",
        address=address,
        digest=once.digest,
        valid_until=once.valid_until,
        may_create=may_create,
        operator=await default_draft(call) if may_create and known is None else None,
    )
    call.throttle.succeeded(stated, call.peer)
    return login_reply(call, account)


async def _require_signature(call: Call[WalletLogin, None], message: wallet.SignInMessage) -> str:
    """Verify the signature of a message by the key of its address, or by a contract wallet.

    Returns:
        The address.

    Raises:
        InvalidEthLoginMessageError: the stated address lacks the checksum of EIP-55.
        InvalidEthLoginSignatureError: the text is no signature, or not one by the address.
        UnavailableError: the address may be a contract, and the chain is unavailable.
    """
    signature = wallet.signature_bytes(call.body.signature)

    def look() -> tuple[str, bytes, str]:
        address, digest = wallet.require_checksum(message), wallet.eip191_digest(message)
        return address, digest, wallet.signature_problem(message, digest, signature)

    address, digest, why_not = await call.workers.run(call.owner, look)
    if why_not and not await call.context.contract_wallets(
        message.chain_id, address, digest, signature
    ):
        raise InvalidEthLoginSignatureError(reason=why_not)
    return address


ROUTES: tuple[Route, ...] = (
    Route("GET", "/login/wallet/nonce", "GetWalletNonce", give_nonce, auth=Auth.ANYBODY),
    *(
        Route("PUT", path, "LoginByEthAddress", login_by_wallet, auth=Auth.ANYBODY)
        for path in ("/login/wallet", "/login/eth")
    ),
)
