#!/usr/bin/env bash
# Deploy the applet to a running node and send it signed readings. See README.md.
set -euo pipefail
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
project=${1:-device_proof_example}
publisher=meter
source "$here/../lib.sh"

hex() { od -An -v -tx1 | tr -d ' \n'; }

# The simulated device: its key, created in the first run, and a function that signs a reading.
mkdir -p "$here/build"
device=$here/build/$project.pem
[[ -f $device ]] || openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out "$device"
public=$(openssl ec -in "$device" -pubout -conv_form compressed -outform DER 2>/dev/null |
  tail -c 33 | hex)
signed() { printf '%s %s' "$(printf %s "$1" | openssl dgst -sha256 -sign "$device" | hex)" "$1"; }

say "deploy, with the device's public key as a variable of the project"
prepare --env "DEVICE_KEY=$public"
module=$("$here/build.sh")
fb applet deploy "$project" "$module" --strategy DEFAULT=start

reading="{\"celsius\": 21.5, \"at\": $(date +%s)}"
payload=$(signed "$reading")

say "a reading that the device signed: code 0, and a proof is stored"
post DEFAULT "$payload"
last=$(fb kv get "$project" last)
fb kv get "$project" "proof/$last"

say "the same reading again by HTTP: code 1, it is already stored"
post DEFAULT "$payload"

say "a reading that was changed on the way: code 11, nothing is stored"
post DEFAULT "${payload/21.5/99.5}"

say "one by MQTT"
second="${reading/21.5/22.5}"
publish DEFAULT "$(signed "$second")"
another() { [[ $(fb kv get "$project" last) != "$last" ]] && echo new; }
eventually new another

say "the applet log"
fb logs "$project" --tail 4
