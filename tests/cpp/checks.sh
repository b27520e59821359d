# Sourced by run_neon.sh and run_avx512.sh: finding tools, building tests/cpp, running each *_check program.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)

# tool NAME: beside $PYTHON, else in PATH. An absolute path: cmake calls it from other folders.
tool() {
  local beside="${PYTHON:+$(cd "$(dirname "$PYTHON")" && pwd)/$1}"
  if [ -n "$beside" ] && [ -x "$beside" ]; then echo "$beside"; else command -v "$1" || true; fi
}

# need NAME HOW: one line and success where it is missing, so that `make test-long` goes on.
need() {
  if [ -z "$(tool "$1")" ]; then
    echo "$0: skipped, $1 is missing; $2"
    exit 0
  fi
}

# build FOLDER CMAKE-ARGUMENTS...
build() {
  local folder=$root/$1
  shift
  need cmake "python -m pip install cmake"
  local generator=()
  [ -n "$(tool ninja)" ] && generator=(-G Ninja "-DCMAKE_MAKE_PROGRAM=$(tool ninja)")
  "$(tool cmake)" -S "$root/tests/cpp" -B "$folder" "${generator[@]}" "$@" >"$folder.log" 2>&1 &&
    "$(tool cmake)" --build "$folder" --parallel "${JOBS:-2}" >>"$folder.log" 2>&1 ||
    { tail -40 "$folder.log"; echo "$0: the build failed"; exit 1; }
}

# run FOLDER NAME COMMAND...: each check program for one instruction set.
run() {
  local folder=$root/$1 name=$2 program
  shift 2
  for source in "$root"/tests/cpp/*_check.cpp; do
    program=$folder/$(basename "$source" .cpp)
    "$@" "$program" "$name"
  done
}
