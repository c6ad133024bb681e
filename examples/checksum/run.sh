#!/usr/bin/env bash
# Deploy the checksum to a running node, and send it events that succeed and fail. See README.md.
set -euo pipefail
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
project=${1:-checksum_example}
publisher=meter
source "$here/../lib.sh"

say "deploy"
prepare
module=$("$here/build.sh")
fb applet deploy "$project" "$module" \
  --strategy DEFAULT=start --strategy FAIL=fail --strategy SPIN=spin
before=$(fb kv get "$project" total 2>/dev/null || echo 0)

say "three bytes by HTTP (97 + 98 + 99), one by MQTT (100)"
post DEFAULT abc
publish DEFAULT d
eventually $((before + 394)) fb kv get "$project" total

say "a handler that changes the total, then traps: code -1, and the total is unchanged"
post FAIL x
fb kv get "$project" total

say "a handler that never ends: stopped at the deadline"
post SPIN x

say "the applet log"
fb logs "$project" --tail 5
