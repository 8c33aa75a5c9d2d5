#!/bin/bash
# The main job, end to end, on a simulated node with two H100s: claims are prepared, real containers come up under runc
# through the shim with their devices, and nothing is left afterwards.
# Everything lives in one temporary folder and a private mount namespace; the machine is left as it was.
set -euo pipefail
cd "$(dirname "$0")/.."

if [ "${1:-}" != inside ]; then
  [ "$(id -u)" = 0 ] || { echo "demo: containers with device rules need root" >&2; exit 1; }
  ./scripts/need.sh runc busybox-static
  work=$(mktemp -d "${TMPDIR:-/tmp}/divvy-demo.XXXXXX")
  trap 'rm -rf --one-file-system "$work"' EXIT
  unshare --mount --propagation private "$0" inside "$work"
  exit
fi
work=$2

# The default places, empty and our own: /run with its divvy and cdi folders, and /etc/divvy.
mount -t tmpfs -o mode=755 tmpfs /run
mkdir -p "$work"/{bin,etc,state,rootfs/{bin,dev,proc,sys,tmp}}
cp target/release/divvy "$work/bin/divvy"
cp target/static/divvy-hook "$work/bin/divvy-hook"
cp -r examples "$work/examples"
cp /bin/busybox "$work/rootfs/bin/busybox"
for applet in sh ls cat env grep sed sort head id mount awk dd; do ln -s busybox "$work/rootfs/bin/$applet"; done
cat >"$work/etc/config.toml" <<TOML
[handlers.divvy-runtime]
engine = "ctr"          # like ctr, runc run by hand lets the caller set annotations
annotations = true
TOML
PATH=$work/bin:$PATH
cd "$work"

if [ -t 1 ]; then bold=$'\e[1m' dim=$'\e[2m' green=$'\e[32m' red=$'\e[31m' off=$'\e[0m'; else bold='' dim='' green='' red='' off=''; fi
title() { printf '\n%s── %s%s\n' "$bold" "$1" "$off"; }
say() { printf '%s%s%s\n' "$dim" "$*" "$off"; }
run() { printf '%s$ %s%s\n' "$green" "$*" "$off"; "$@"; }
gpus=(--gpus sim:"examples/h100x2.toml" --state-dir state)

# A container as an engine would make it: deny-all device rules, and a claim asked for by annotation.
bundle() { # NAME ANNOTATION-KEY ANNOTATION-VALUE
  mkdir -p "bundles/$1"
  cat >"bundles/$1/config.json" <<JSON
{"ociVersion":"1.0.2","hostname":"$1","annotations":{"$2":"$3"},
 "root":{"path":"$work/rootfs","readonly":true},
 "process":{"user":{"uid":0,"gid":0},"cwd":"/","env":["PATH=/bin"],"noNewPrivileges":true,"args":["sh","-c",
  "ls -l /dev | awk '/nvidia/ {print \"  device  /dev/\" \$10 \"  (\" substr(\$1,1,1) \" \" \$5 \" \" \$6 \")\"}'; for d in /dev/nvidia[0-9]* /dev/nvidia-caps/*; do [ -e \$d ] && dd if=\$d of=/dev/null bs=1 count=0 2>/dev/null && echo \"  opened  \$d\"; done; awk '/nvidia|divvy/ && \$2 !~ /^.dev/ {print \"  mount   \" \$2 \" (\" substr(\$4,1,2) \")\"}' /proc/mounts; env | sort | awk '/NVIDIA|DIVVY|CUDA/ {print \"  env     \" \$0}'"]},
 "mounts":[{"destination":"/proc","type":"proc","source":"proc"},
  {"destination":"/dev","type":"tmpfs","source":"tmpfs","options":["nosuid","strictatime","mode=755","size=65536k"]}],
 "linux":{"resources":{"devices":[{"allow":false,"access":"rwm"}]},
  "namespaces":[{"type":"pid"},{"type":"mount"},{"type":"ipc"},{"type":"uts"},{"type":"network"}]}}
JSON
}
container() { # NAME: through the shim, which edits the bundle's config and then becomes runc
  printf '%s$ divvy-runtime run --bundle bundles/%s %s%s\n' "$green" "$1" "$1" "$off"
  divvy-hook --config etc/config.toml runtime --root /run/runc run --bundle "bundles/$1" "demo-$1"
}

title "A node with two H100s, simulated"
run cat examples/h100x2.toml

title "Claims come in"
