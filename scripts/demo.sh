#!/bin/bash
# The main job, end to end, on a simulated node with two H100s: claims are prepared, real containers come up under runc
# through the shim with their devices, and nothing is left afterwards.
# Everything lives in one temporary folder and a private mount namespace; the machine is left as it was.
set -euo pipefail
cd "$(dirname "$0")/.."

if [ "${1:-}" != inside ]; then
  [ "$(id -u)" = 0 ] || { echo "demo: containers with device rules need root" >&2; exit 1; }
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
for applet in sh env sort awk stat; do ln -s busybox "$work/rootfs/bin/$applet"; done
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
refused() { # a command that has to fail, with its message
  if "$@" 2>&1; then echo "demo: that should have been refused" >&2; exit 1; fi
}
gpus=(--gpus sim:"examples/h100x2.toml" --state-dir state)

# A container as an engine would make it: deny-all device rules, and a claim asked for by annotation.
bundle() { # NAME ANNOTATION-KEY ANNOTATION-VALUE
  mkdir -p "bundles/$1"
  cat >"bundles/$1/config.json" <<JSON
{"ociVersion":"1.0.2","hostname":"$1","annotations":{"$2":"$3"},
 "root":{"path":"$work/rootfs","readonly":true},
 "process":{"user":{"uid":0,"gid":0},"cwd":"/","env":["PATH=/bin"],"noNewPrivileges":true,"args":["sh","-c",
  "for d in /dev/nvidia* /dev/nvidia-caps/*; do [ -c \$d ] && echo \"  device  \$d (\$(stat -c %t:%T \$d))\"; done; for d in /dev/nvidia[0-9]* /dev/nvidia-caps/*; do [ -c \$d ] && : <\$d && echo \"  opened  \$d\"; done; awk '/divvy/ && \$2 !~ /^.dev/ {print \"  mount   \" \$2 \" (\" substr(\$4,1,2) \")\"}' /proc/mounts; env | sort | awk '/NVIDIA|DIVVY/ {print \"  env     \" \$0}'"]},
 "mounts":[{"destination":"/proc","type":"proc","source":"proc"},
  {"destination":"/dev","type":"tmpfs","source":"tmpfs","options":["nosuid","strictatime","mode=755","size=65536k"]}],
 "linux":{"resources":{"devices":[{"allow":false,"access":"rwm"}]},
  "namespaces":[{"type":"pid"},{"type":"mount"},{"type":"ipc"},{"type":"uts"},{"type":"network"}]}}
JSON
}
container() { # NAME: through the shim, which edits the bundle's config and then becomes runc
  run divvy-hook --config etc/config.toml runtime --root /run/runc run --bundle "bundles/$1" "demo-$1"
}

title "A node with two H100s, simulated"
run sed -n '/^node/,$p' examples/h100x2.toml

title "Claims come in: a whole GPU, and a MIG slice"
run divvy "${gpus[@]}" prepare -f examples/claims/whole-gpu.yaml
run divvy "${gpus[@]}" prepare -f examples/claims/mig-1g.10gb.yaml

title "Containers start, each with a claim"
bundle whole divvy.dev/claim whole-gpu
container whole
bundle slice divvy.dev/claim mig-small
container slice

title "The first GPU is taken: nobody else gets it"
refused run divvy "${gpus[@]}" prepare -f examples/claims/time-sliced.yaml
run divvy "${gpus[@]}" unprepare whole-gpu

title "Now it is shared in short turns, by two containers with one claim"
run divvy "${gpus[@]}" prepare -f examples/claims/time-sliced.yaml
run grep timeSlice examples/h100x2.state.json
bundle left divvy.dev/claim shared
bundle right divvy.dev/claim shared
container left >left.out 2>&1 &
container right >right.out 2>&1 &
wait %1 && wait %2 && cat left.out right.out

title "A device that does not exist: the container does not start, and says why"
bundle wrong cdi.k8s.io/demo nvidia.com/gpu=9
refused container wrong

title "The claims end, and nothing is left"
run divvy "${gpus[@]}" unprepare shared
run divvy "${gpus[@]}" unprepare mig-small
run find /var/run/cdi /run/divvy state -type f ! -path 'state/locks/*'
run cat examples/h100x2.state.json
left=$(find /var/run/cdi /run/divvy state -type f ! -path 'state/locks/*' ! -name hook.log)
if [ -n "$left" ] || grep -q uuid examples/h100x2.state.json; then echo "demo: something is left" >&2; exit 1; fi
echo
say "No spec, no record, no journal entry, no partition: the node is as it was."
