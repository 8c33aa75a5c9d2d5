#!/bin/sh
# Builds what the bench runs beside divvy-hook into target/bench: the floor programs and the Go reference.
set -eu
cd "$(dirname "$0")/.."
target="$(cat target/static/target)"
mkdir -p target/bench
# glibc refers to the unwinder, which programs without std do not bring.
case $target in *-gnu) unwinder='-C link-arg=-lgcc_eh -C link-arg=-lgcc' ;; *) unwinder= ;; esac
floor() { # floor NAME SOURCE FLAG…
  name=$1 source=$2
  shift 2
  # shellcheck disable=SC2086
  rustc --edition 2024 --crate-type bin --target "$target" -O \
    -C panic=abort -C relocation-model=static -C target-feature=+crt-static -C strip=symbols \
    $unwinder "$@" -o "target/bench/$name" "bench/floor/$source.rs"
}
floor empty empty
floor empty-shim empty_shim
floor iofloor iofloor
floor iofloor-etc iofloor --cfg etc_only --check-cfg 'cfg(etc_only)'
floor launch launch
[ "${1-}" = floors ] && exit
(cd bench/go-lean && CGO_ENABLED=0 ../../scripts/go.sh build -trimpath -ldflags '-s -w' -o ../../target/bench/go-lean .)
