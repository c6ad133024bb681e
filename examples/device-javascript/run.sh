#!/usr/bin/env bash
# Send readings with fetch(). See README.md.
set -euo pipefail
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
project=${1:-device_example}
publisher=sensor-1
source "$here/../lib.sh"

say "deploy"
prepare
fb applet deploy "$project" "$here/../counter/counter.wat"

say "three readings"
FIELDBROOK_URL=$FIELDBROOK_SERVER FIELDBROOK_PROJECT=$project \
  FIELDBROOK_PUBLISHER_TOKEN=$token node "$here/sensor.js" 3

say "the number of counted events"
fb kv get "$project" count
