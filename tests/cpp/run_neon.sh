#!/usr/bin/env bash
# The kernels for Arm: built by a cross compiler and run under qemu-user, or as they are on an Arm machine.
# On Debian: apt install g++-aarch64-linux-gnu qemu-user-static
set -euo pipefail
. "$(dirname "$0")/checks.sh"

mkdir -p "$root/build"
if [ "$(uname -m)" = aarch64 ] || [ "$(uname -m)" = arm64 ]; then
  build build/checks
  run build/checks neon
  exit
fi
need aarch64-linux-gnu-g++ "on Debian: apt install g++-aarch64-linux-gnu"
need qemu-aarch64-static "on Debian: apt install qemu-user-static"
build build/checks-neon -DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR=aarch64 \
  -DCMAKE_CXX_COMPILER=aarch64-linux-gnu-g++ -DCMAKE_EXE_LINKER_FLAGS=-static
run build/checks-neon neon "$(tool qemu-aarch64-static)"
