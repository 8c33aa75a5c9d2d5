#!/bin/sh
# Runs each fuzz target of tests/fuzz for so many seconds: fuzz.sh SECONDS [TARGET…]
# A find lies in tests/fuzz/artifacts then, and the exit status is 1.
set -eu
cd "$(dirname "$0")/.."
seconds=$1
shift
fail() {
  echo "fuzz.sh: cannot fuzz: $1" >&2
  exit 1
}
if ! cargo +nightly --version >/dev/null 2>&1; then
  fail "no nightly toolchain is here, and sanitizers need one; rustup toolchain install nightly"
fi
./scripts/need.sh g++
PATH="$PWD/target/tools/bin:$PATH"
if ! cargo fuzz --version >/dev/null 2>&1; then
  echo "installing cargo-fuzz into target/tools" >&2
  cargo install --quiet --locked cargo-fuzz --root target/tools || fail "cargo-fuzz cannot be installed"
fi
[ $# -gt 0 ] || set -- names spec edit reframe
mkdir -p target
for target in "$@"; do
  corpus=tests/fuzz/corpus/$target
  log=target/fuzz-$target.log
  mkdir -p "$corpus"
  # What is no CDI gains nothing from its words.
  dict=
  [ "$target" = reframe ] || dict=-dict=tests/fuzz/cdi.dict
  echo "$target: $seconds seconds after the build, log in $log" >&2
  if ! cargo +nightly fuzz run --fuzz-dir tests/fuzz "$target" "$corpus" "tests/fuzz/seeds/$target" -- \
    -max_total_time="$seconds" $dict -max_len=4096 -timeout=10 >"$log" 2>&1; then
    tail -n 40 "$log" >&2
    echo "$target: FAILED, the input lies in tests/fuzz/artifacts/$target" >&2
    exit 1
  fi
  echo "$target: $(grep '^Done' "$log")"
done
