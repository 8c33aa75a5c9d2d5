#!/bin/sh
# Builds the static divvy-hook into a folder, target/static where none is named: build-hook.sh [DIR]
# musl where rustup can bring the target; else static glibc (a millisecond slower to start), and it says so.
set -eu
cd "$(dirname "$0")/.."
out=${1:-target/static}
target="$(uname -m)-unknown-linux-musl"
# No position independence: a one-shot root process gains nothing from it and pays for relocations.
# SHA-256 without CPU detection: each CPUID traps in a virtual machine, and a spec is a few KB.
# No unwind tables: a panic aborts.
# The functions that a start runs stand together (order.ld), behind the file's head in one segment
# with it: each 64 KB that a start touches is a page fault, and each segment a mapping.
# Less inlining: the binary stays small, and a start hardly feels it.
flags=$(printf '%s\037' -C relocation-model=static -C target-feature=+crt-static -C force-unwind-tables=no \
  -C llvm-args=-inline-threshold=60 -C link-arg=-Wl,-T,"$PWD/hooks/order.ld",-z,noseparate-code \
  --cfg 'sha2_backend="soft"')
if ! rustup target list --installed | grep -qx "$target" && ! rustup -q target add "$target" >/dev/null 2>&1; then
  target="$(uname -m)-unknown-linux-gnu"
  echo "build-hook: no musl target here, linking statically against glibc" >&2
fi
# Cargo does not know of the linker script.
if [ hooks/order.ld -nt "target/$target/hook/divvy-hook" ]; then touch hooks/src/main.rs; fi
CARGO_ENCODED_RUSTFLAGS=${flags%?} \
  cargo build --locked -p divvy-hook --bin divvy-hook --profile hook --target "$target"
mkdir -p "$out"
# The tables of std's own code have no reader either, but with glibc, whose start-up looks at them.
tables="-R .eh_frame -R .eh_frame_hdr -R .gcc_except_table"
case $target in *-gnu) tables= ;; esac
# shellcheck disable=SC2086
objcopy $tables "target/$target/hook/divvy-hook" "$out/divvy-hook.new"
mv -f "$out/divvy-hook.new" "$out/divvy-hook"
echo "$target" >"$out/target"
