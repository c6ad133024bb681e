#!/usr/bin/env bash
# Deploy the thermostat to a running node and send it some temperatures. See README.md.
set -euo pipefail
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
project=${1:-thermostat_example}
publisher=kitchen
source "$here/../lib.sh"

say "deploy, with a limit of 25 degrees"
prepare --env TEMPERATURE_LIMIT=25
module=$("$here/build.sh" | tail -n 1)
fb applet deploy "$project" "$module" \
  --strategy DEFAULT=start --strategy RESET=reset

say "two readings by HTTP, one by MQTT"
post DEFAULT '{"device": "kitchen", "temperature": 21.5}'
post DEFAULT '{"device": "kitchen", "temperature": 26}'
publish DEFAULT '{"device": "kitchen", "temperature": 22.25}'
eventually 22.25 fb kv get "$project" last/kitchen

say "the applet log"
fb logs "$project" --tail 3

say "the last and the highest temperature"
fb kv get "$project" last/kitchen
fb kv get "$project" max/kitchen

say "the highest one, after a reset"
post RESET '{"device": "kitchen"}'
fb kv get "$project" max/kitchen
