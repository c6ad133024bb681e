"""Device signatures and digests, imported from the module `fieldbrook`; `wasm.signatures`
implements them.

Verification returns 0 only for a valid signature and another code for every failure, as all
host functions do. An applet that only compares with zero is therefore safe for any input.
"""

from __future__ import annotations

from collections.abc import Callable

from fieldbrook.security.keccak import keccak256
from fieldbrook.wasm import signatures
from fieldbrook.wasm.host.guest import Functions, Guest
from fieldbrook.wasm.module import abi

# No digest, signature or key is this long. A longer value still has a wrong length after it is cut.
# Copying megabytes would hold the interpreter's lock, for which other projects wait.
_LONGEST_BYTES = 256


def functions(guest: Guest) -> Functions:
    """Return `verify_*`, `recover_*`, `sha256` and `keccak256` of module `fieldbrook`."""
    read, copy_to_guest = guest.read, guest.copy_to_guest

    def short(pointer: int, size: int) -> bytes:
        return guest.read_head(pointer, size, _LONGEST_BYTES)

    def verifier(
        verify: Callable[[bytes, bytes, bytes], int], read_data: Callable[[int, int], bytes]
    ) -> Callable[..., int]:
        def call(
            data_at: int, data_size: int, sig_at: int, sig_size: int, key_at: int, key_size: int
        ) -> int:
            key = short(key_at, key_size)
            return verify(read_data(data_at, data_size), short(sig_at, sig_size), key)

        return call

    def recoverer(recover: Callable[[bytes, bytes], tuple[int, bytes]]) -> Callable[..., int]:
        def call(
            digest_at: int, digest_size: int, sig_at: int, sig_size: int, ptr_at: int, size_at: int
        ) -> int:
            code, found = recover(short(digest_at, digest_size), short(sig_at, sig_size))
            if code == abi.OK:
                copy_to_guest(found, ptr_at, size_at)
            return code

        return call

    def hasher(digest: Callable[[bytes], bytes]) -> Callable[..., int]:
        def call(data_at: int, data_size: int, pointer_at: int, size_at: int) -> int:
            copy_to_guest(digest(read(data_at, data_size)), pointer_at, size_at)
            return abi.OK

        return call

    return {
        abi.VERIFY_SECP256K1: verifier(signatures.verify_secp256k1, short),
        abi.VERIFY_P256: verifier(signatures.verify_p256, short),
        abi.VERIFY_ED25519: verifier(signatures.verify_ed25519, read),
        abi.RECOVER_SECP256K1: recoverer(signatures.recover_secp256k1),
        abi.RECOVER_ADDRESS: recoverer(signatures.recover_address),
        abi.SHA256: hasher(signatures.sha256),
        abi.KECCAK256: hasher(keccak256),
    }
