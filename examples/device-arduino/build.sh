#!/usr/bin/env bash
# Build the sketch for this computer: build.sh [FOLDER]; prints the path of the program.
set -euo pipefail
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
out=${1:-$here/build}
mkdir -p "$out"
"${CXX:-g++}" -std=c++17 -O1 -Wall -Wextra -Werror -I"$here/host" \
  -DNODE_URL='getenv("NODE_URL")' -DNODE_PROJECT='getenv("NODE_PROJECT")' \
  -DNODE_TOKEN='getenv("NODE_TOKEN")' -DREADING_EVERY_MS=50 -o "$out/sensor" "$here/host/main.cpp"
printf '%s\n' "$out/sensor"
