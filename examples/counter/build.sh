#!/usr/bin/env bash
# There is little to build: the node takes the text format as it is. ./build.sh [FOLDER] copies
# it to FOLDER (by default `build`), and also assembles it when wat2wasm is installed.
set -euo pipefail
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
out=${1:-$here/build}
mkdir -p "$out"
cp "$here/counter.wat" "$out/counter.wat"
if command -v wat2wasm >/dev/null; then
  wat2wasm "$out/counter.wat" -o "$out/counter.wasm"
fi
echo "$out/counter.wat"
