#!/usr/bin/env bash
# The AVX-512 kernels: as they are where the CPU has it, else over SIMDe on AVX2 (slow, the same source).
# On Debian: apt install libsimde-dev
set -euo pipefail
. "$(dirname "$0")/checks.sh"

mkdir -p "$root/build"
if [ "$(uname -m)" != x86_64 ]; then
  echo "$0: skipped, this is no x86-64 machine"
  exit 0
fi
if grep -qw avx512_vnni /proc/cpuinfo 2>/dev/null; then
  build build/checks
  run build/checks avx512
  exit
fi
if ! echo '#include <simde/x86/avx512.h>' | c++ -std=c++20 -fsyntax-only -x c++ - 2>/dev/null; then
  echo "$0: skipped, this CPU has no AVX-512 and SIMDe is missing; on Debian: apt install libsimde-dev"
  exit 0
fi
build build/checks-avx512 -DEMULATE_AVX512=ON
run build/checks-avx512 avx512
