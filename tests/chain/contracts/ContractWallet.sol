// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.20;

/// A wallet that is a contract: what its owner signs is its own signature (EIP-1271), two
/// bytes longer. Compiled by `tests/chain/js/compile.js`.
contract ContractWallet {
    address private immutable owner = msg.sender;

    function isValidSignature(bytes32 digest, bytes calldata signature) external view returns (bytes4) {
        require(signature.length == 67, "two bytes and a signature");
        bytes32 r = bytes32(signature[2:34]);
        bytes32 s = bytes32(signature[34:66]);
        return ecrecover(digest, uint8(signature[66]), r, s) == owner ? this.isValidSignature.selector : bytes4(0);
    }
}
