#!/usr/bin/env bash
# Copy the applet: ./build.sh [FOLDER]. The node accepts the text format, so a copy in FOLDER
# (`build` by default) is enough; wat2wasm also assembles it there if it is installed.
set -euo pipefail
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
out=${1:-$here/build}
mkdir -p "$out"
cp "$here/counter.wat" "$out/counter.wat"
if command -v wat2wasm >/dev/null; then
  wat2wasm "$out/counter.wat" -o "$out/counter.wasm"
fi
echo "$out/counter.wat"
