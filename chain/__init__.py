"""EVM chains as their endpoints tell of them: calls, blocks, logs."""
