# Functions of the run scripts, which set `project` and `publisher` before they source this file.
#
#   FIELDBROOK_SERVER   the node's address, http://127.0.0.1:8888 by default
#   FIELDBROOK_MQTT     the broker's address, 127.0.0.1:1883 by default
#   FIELDBROOK_COMMAND  the command line client, `fieldbrook` by default
# shellcheck shell=bash
export FIELDBROOK_SERVER=${FIELDBROOK_SERVER:-http://127.0.0.1:8888}
mqtt=${FIELDBROOK_MQTT:-127.0.0.1:1883}
read -r -a client <<<"${FIELDBROOK_COMMAND:-fieldbrook}"

say() { printf '\n== %s\n' "$*"; }

fb() { "${client[@]}" "$@"; }

# Create the project and the publisher, unless they exist, and read the publisher's token.
prepare() {
  fb project show "$project" >/dev/null 2>&1 || fb project create "$project" "$@"
  fb publisher token "$project" "$publisher" >/dev/null 2>&1 ||
    fb publisher add "$project" "$publisher" >/dev/null
  token=$(fb publisher token "$project" "$publisher")
}

# Print a data message: message TYPE PAYLOAD.
message() {
  printf '{"header":{"event_type":"%s","pub_id":"%s","token":"%s","pub_time":%s},"payload":"%s"}' \
    "$1" "$publisher" "$token" "$(date +%s)" "$(printf %s "$2" | base64 | tr -d '\n')"
}

# Send an event by HTTP, as a device does, and print the answer: post TYPE PAYLOAD.
post() {
  message "$1" "$2" | curl --silent --show-error --fail-with-body --data-binary @- \
    --header 'Content-Type: text/plain' "$FIELDBROOK_SERVER/srv-applet-mgr/v0/event/$project"
}

# Send an event by MQTT, as a device does: publish TYPE PAYLOAD. The topic is the project's name.
publish() {
  message "$1" "$2" | mosquitto_pub -h "${mqtt%:*}" -p "${mqtt##*:}" -q 1 -t "$project" -s
}

# Wait until a command prints a text, because MQTT messages are handled later: eventually TEXT
# COMMAND...
eventually() {
  local wanted=$1 found=''
  shift
  for _ in $(seq 100); do
    found=$("$@" 2>/dev/null) && [[ $found == "$wanted" ]] && return
    sleep 0.1
  done
  echo "never happened: '$*' gives '$wanted'; it gives '$found'" >&2
  return 1
}
