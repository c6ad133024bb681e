// Compiles the contract into DeviceToken.json: npm ci && node compile.js.
const fs = require("fs");
const path = require("path");
const solc = require("solc");

const file = "DeviceToken.sol";
const input = {
  language: "Solidity",
  sources: { [file]: { content: fs.readFileSync(path.join(__dirname, file), "utf8") } },
  settings: {
    evmVersion: "paris",
    metadata: { bytecodeHash: "none" },
    optimizer: { enabled: true, runs: 200 },
    outputSelection: { "*": { "*": ["abi", "evm.bytecode.object"] } },
  },
};
const output = JSON.parse(solc.compile(JSON.stringify(input)));
const errors = (output.errors || []).filter((error) => error.severity === "error");
if (errors.length) throw new Error(errors.map((error) => error.formattedMessage).join("\n"));
const { abi, evm } = output.contracts[file].DeviceToken;
const made = { abi, bytecode: "0x" + evm.bytecode.object };
fs.writeFileSync(path.join(__dirname, "DeviceToken.json"), JSON.stringify(made, null, 1) + "\n");
