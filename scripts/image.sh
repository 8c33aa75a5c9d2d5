#!/bin/bash
# Makes the image of the chart: image.sh OUT.tar [REF] (localhost/divvy:VERSION), a docker archive that `ctr images import`,
# `docker load` and `podman load` read. From scratch, without a registry: divvy, divvy-node and the static divvy-hook, and the
# C library that the first two were linked with, all below /divvy. Nothing else is in it; the folders of the host that the
# GPU driver is in are mounted at their own paths, and /bin, /lib and their like lead into the host's /usr.
set -euo pipefail
cd "$(dirname "$0")/.."
out=${1:?image.sh OUT.tar [REF]}
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n1)
ref=${2:-localhost/divvy:$version}
profile=${PROFILE:-release} # debug: what the tests built
./scripts/need.sh patchelf
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=$work/root
mkdir -p "$root"/divvy/lib "$root"/{dev,etc,proc,run,sys,tmp,usr,var/lib}
for dir in bin sbin lib lib64; do ln -s usr/$dir "$root/$dir"; done
ln -s /run "$root/var/run"
chmod 1777 "$root/tmp"
install -m 755 target/static/divvy-hook "$root/divvy/divvy-hook"
loader=
for program in divvy divvy-node; do
  install -m 755 "target/$profile/$program" "$root/divvy/$program"
  strip "$root/divvy/$program"
  loader=$(patchelf --print-interpreter "$root/divvy/$program")
  # By its own loader and C library: the host's, in the same places, may be older.
  # As an rpath it also counts for what the driver's library, which is opened later, was linked with.
  patchelf --set-interpreter "/divvy/lib/${loader##*/}" --force-rpath --set-rpath /divvy/lib "$root/divvy/$program"
  ldd "target/$profile/$program" | sed -nE 's/.* => (\/[^ ]+).*/\1/p' | xargs -I{} install -m 755 {} "$root/divvy/lib/"
done
install -m 755 "$loader" "$root/divvy/lib/"
# All of one C library: the host's other parts of it fit no other.
libc=$(ldd "target/$profile/divvy-node" | sed -nE 's/.*libc\.so\.6 => (\/[^ ]+).*/\1/p')
for part in libm.so.6 libpthread.so.0 libdl.so.2 librt.so.1; do install -m 755 "${libc%/*}/$part" "$root/divvy/lib/"; done
sum() { sha256sum "$1" | cut -d' ' -f1; }
pack() { # FOLDER TAR: what is in it, always the same bytes
  (cd "$1" && tar --sort=name --owner=0 --group=0 --numeric-owner --mtime=@0 -cf "$2" -- *)
}
pack "$root" "$work/layer.tar"
arch=$(uname -m | sed 's/x86_64/amd64/; s/aarch64/arm64/')
mkdir "$work/image"
cat >"$work/config" <<JSON
{"architecture":"$arch","os":"linux","config":{"Entrypoint":["/divvy/divvy-node"],"Env":["PATH=/divvy:/usr/bin:/usr/sbin:/bin:/sbin"],"WorkingDir":"/"},"rootfs":{"type":"layers","diff_ids":["sha256:$(sum "$work/layer.tar")"]}}
JSON
config=$(sum "$work/config").json
mv "$work/config" "$work/image/$config"
mv "$work/layer.tar" "$work/image/layer.tar"
echo "[{\"Config\":\"$config\",\"RepoTags\":[\"$ref\"],\"Layers\":[\"layer.tar\"]}]" >"$work/image/manifest.json"
pack "$work/image" "$(realpath -m "$out")"
echo "$ref in $out, $(du -h "$out" | cut -f1)"
