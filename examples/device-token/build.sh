#!/usr/bin/env bash
# Compile the applet: ./build.sh [FOLDER]. Writes the module to FOLDER (`build` by
# default). Needs clang and lld (wasm-ld). README.md says how to compile the contract.
set -euo pipefail
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
out=${1:-$here/build}
mkdir -p "$out"
# -fno-builtin: without a C library a loop must not become a call of memcpy.
"${CLANG:-clang}" --target=wasm32-unknown-unknown -std=c11 -O2 -nostdlib -ffreestanding -fno-builtin \
  -Wall -Wextra -Wpedantic -Werror -Wl,--no-entry -Wl,-z,stack-size=8192 -Wl,--stack-first -Wl,--strip-all \
  "$here/device_token.c" -o "$out/device_token.wasm"
echo "$out/device_token.wasm"
