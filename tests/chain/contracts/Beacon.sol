// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.20;

/// Emits what tests look for. Compiled by `tests/chain/js/compile.js`.
contract Beacon {
    struct Position {
        int32 latitude;
        int32 longitude;
    }

    event Ping(uint256 indexed number, address indexed sender, string text);
    event Transfer(address indexed from, address indexed to, uint256 value);
    event Report(string indexed device, int64 temperature, bool ok, uint8[] flags, Position position, bytes data);

    function ping(uint256 number, string calldata text) external {
        emit Ping(number, msg.sender, text);
    }

    function many(uint256 first, uint256 count) external {
        for (uint256 n = first; n < first + count; n++) {
            emit Ping(n, msg.sender, "");
        }
    }

    function transfer(address to, uint256 value) external {
        emit Transfer(msg.sender, to, value);
    }

    function report(string calldata device, int64 temperature, uint8[] calldata flags, bytes calldata data) external {
        emit Report(device, temperature, temperature > 0, flags, Position(-5, 7), data);
    }

    function refuse(string calldata reason) external pure {
        revert(reason);
    }
}
