#!/bin/bash
# clang 19 for the Metal emulator (tests/metal_emulator): from Debian's packages where it is missing. Nothing on a Mac.
set -eu
[ "$(uname)" != Darwin ] || exit 0
! command -v clang++-19 >/dev/null || exit 0
packages="clang-19 libclang-rt-19-dev lld-19"
root=""
[ "$(id -u)" = 0 ] || root="sudo -n"
if ! command -v apt-get >/dev/null || { [ -n "$root" ] && ! $root true 2>/dev/null; }; then
  echo "make: the Metal tests need clang 19; on Debian 12: apt install $packages" >&2
  exit 1
fi
echo "installing $packages"
$root apt-get update -qq
$root env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends $packages >/dev/null
