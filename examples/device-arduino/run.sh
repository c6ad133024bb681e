#!/usr/bin/env bash
# Build the sketch for this computer and let it send to a running node. See README.md.
set -euo pipefail
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
project=${1:-device_example}
publisher=sensor-1
source "$here/../lib.sh"

say "deploy"
prepare
fb applet deploy "$project" "$here/../counter/counter.wat"
program=$("$here/build.sh")

say "three readings of the sketch"
NODE_URL=$FIELDBROOK_SERVER NODE_PROJECT=$project NODE_TOKEN=$token "$program"

say "the number of counted events"
fb kv get "$project" count
