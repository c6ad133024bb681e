#!/usr/bin/env bash
# Compile the applet: ./build.sh [FOLDER]. Writes everything to FOLDER (`build` by
# default). Needs npm.
set -euo pipefail
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
out=${1:-$here/build}
mkdir -p "$out"
cp -R "$here/package.json" "$here/package-lock.json" "$here/.npmrc" "$here/assembly" "$out"
cd -- "$out"
npm ci --silent --ignore-scripts --no-audit --no-fund
npx --no-install asc assembly/index.ts --outFile thermostat.wasm --optimizeLevel 3 --disableWarning
echo "$PWD/thermostat.wasm"
