#!/bin/sh
# A simulated device: sends readings to a node over HTTP, one per second, and prints the answers.
#
#   export TOKEN=$(fieldbrook publisher token PROJECT PUBLISHER)
#   sh device.sh PROJECT [COUNT]                  # 10 readings if COUNT is not given
#
# NODE is the node's address (http://localhost:8888), TYPE the type of the events (DEFAULT), and
# PAUSE the number of seconds between two readings.
set -eu

project=${1:?give the name of the project}
count=${2:-10}
: "${TOKEN:?set it to the token of a publisher}"

number=0
while [ "$number" -lt "$count" ]; do
  number=$((number + 1))
  [ "$number" -eq 1 ] || sleep "${PAUSE:-1}"
  reading="{\"device\": \"{{name}}\", \"number\": $number, \"celsius\": $((18 + number % 7)).$((number * 3 % 10))}"
  # The token goes to curl on standard input, because everybody can read its arguments.
  printf 'header = "Authorization: Bearer %s"\n' "$TOKEN" |
    curl --config - --silent --show-error --fail-with-body --data "$reading" \
      "${NODE:-http://localhost:8888}/srv-applet-mgr/v0/event/$project?eventType=${TYPE:-DEFAULT}"
  echo
done
