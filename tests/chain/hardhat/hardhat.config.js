// A chain as tests/chain/evm.py has it with anvil: a block per transaction, unlocked accounts.
module.exports = {
  networks: {
    hardhat: {
      chainId: 31337,
      hardfork: process.env.HARDFORK || "cancun", // later ones allow no transaction as large as those that tests send
      blockGasLimit: 60_000_000,
    },
  },
};
