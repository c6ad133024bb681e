#!/usr/bin/env bash
# Deploy contract and applet, send signed readings, see tokens minted. See README.md.
set -euo pipefail
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
project=${1:-device_token_example}
publisher=meter
source "$here/../lib.sh"
rpc_url=${CHAIN_RPC:-http://127.0.0.1:8545}

hex() { od -An -v -tx1 | tr -d ' \n'; }

# Call the chain's RPC endpoint and print the answer: ask METHOD PARAMS.
ask() {
  curl --silent --show-error --fail-with-body --header 'Content-Type: application/json' \
    --data "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"$1\",\"params\":$2}" "$rpc_url"
}

# Print the first 0x... after a key of an answer: value KEY.
value() { sed -n "s/.*\"$1\" *:[^0]*\"\(0x[0-9a-fA-F]*\)\".*/\1/p" | head -n 1; }

# Send a transaction from the chain's first account, which development chains unlock, wait until
# it is in a block, and print its hash: transact FIELDS.
transact() {
  local hash
  hash=$(ask eth_sendTransaction "[{\"from\":\"$rich\",$1}]" | value result)
  mined() { [[ -n $(ask eth_getTransactionReceipt "[\"$hash\"]" | value blockHash) ]] && echo mined; }
  eventually mined mined
  echo "$hash"
}

say "the chain, and the account that mints: the operator of the project"
chain=$(($(ask eth_chainId '[]' | value result)))
rich=$(ask eth_accounts '[]' | grep -o '0x[0-9a-fA-F]*' | head -n 1)
fb chain show "$chain" >/dev/null

# The simulated device: its key, created in the first run, and a function that signs a reading.
mkdir -p "$here/build"
device=$here/build/$project.pem
[[ -f $device ]] || openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out "$device"
public=$(openssl ec -in "$device" -pubout -conv_form compressed -outform DER 2>/dev/null |
  tail -c 33 | hex)
signed() { printf '%s %s' "$(printf %s "$1" | openssl dgst -sha256 -sign "$device" | hex)" "$1"; }

minter=$(fb operator list | sed -n 's/^default .*\(0x[0-9a-fA-F]\{40\}\).*/\1/p')
echo "$minter on chain $chain"
transact "\"to\":\"$minter\",\"value\":\"0xde0b6b3a7640000\"" >/dev/null

if [[ ! -f $here/build/$project.token ]]; then
  say "deploy the contract, once: the operator may mint; the chain's first account owns the device"
  code=$(sed -n 's/.*"bytecode": "\(0x[0-9a-f]*\)".*/\1/p' "$here/DeviceToken.json")
  height=$(($(ask eth_blockNumber '[]' | value result) + 1))
  hash=$(transact "\"gas\":\"0x200000\",\"data\":\"$code$(printf %064d 0 | head -c 24)${minter#0x}\"")
  ask eth_getTransactionReceipt "[\"$hash\"]" | value contractAddress >"$here/build/$project.token"
fi
contract=$(cat "$here/build/$project.token")
echo "$contract"

say "deploy the applet: handlers for reports, token transfers and outcomes of transactions"
prepare --env "DEVICE_KEY=$public" --env "TOKEN=$contract" --env "OWNER=$rich" --env "CHAIN_ID=$chain"
module=$("$here/build.sh")
fb applet deploy "$project" "$module" --strategy REPORT=report --strategy TRANSFER=credited \
  --strategy TX_RESULT=settled
if [[ -n ${height:-} ]]; then
  fb monitor add-log "$project" "$contract" --chain "$chain" --from "$height" --type TRANSFER \
    --event 'Transfer(address indexed from, address indexed to, uint256 value)'
fi
before=$(fb kv get "$project" credited 2>/dev/null || echo 0)

reading="{\"celsius\": 21.5, \"at\": $(date +%s%N)}"
payload=$(signed "$reading")

say "a reading that the device signed: code 0, a token is minted"
post REPORT "$payload"

say "the same reading again: code 1; a changed one: code 11"
post REPORT "$payload"
post REPORT "${payload/21.5/99.5}"

say "another reading by MQTT"
publish REPORT "$(signed "${reading/21.5/22.5}")"

say "the transactions, and the tokens that the chain has credited"
eventually "$((before + 2))" fb kv get "$project" credited
fb tx list "$project"
fb kv get "$project" credited
