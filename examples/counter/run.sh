#!/usr/bin/env bash
# Deploy the counter to a running node and send it three events. See README.md.
set -euo pipefail
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
project=${1:-counter_example}
publisher=sensor-1
source "$here/../lib.sh"

say "deploy"
prepare
module=$("$here/build.sh")
fb applet deploy "$project" "$module"
before=$(fb kv get "$project" count 2>/dev/null || echo 0)

say "one event by HTTP, one by MQTT, one by the command line"
post DEFAULT 21.5
publish DEFAULT 21.6
eventually $((before + 2)) fb kv get "$project" count
fb send "$project" --publisher "$publisher" --data 21.7

say "the applet log"
fb logs "$project" --tail 3

say "the number of counted events"
fb kv get "$project" count
