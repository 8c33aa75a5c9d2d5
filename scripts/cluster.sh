#!/bin/bash
# Brings the programs of a Kubernetes cluster, and prints the folder they are in: cluster.sh [new|old]
# kube-apiserver, kube-controller-manager, kube-scheduler, kubelet, kubectl and etcd are one program by several names
# (tests/cluster/kube), of the newest version, or of the oldest that divvy-node is for. The new folder has helm
# and an OpenTelemetry collector (tests/cluster/otelcol) as well.
# The folder is ~/.cache/divvy/cluster-HASH (XDG_CACHE_HOME), HASH being that of what they are made of. It takes about ten
# minutes of two cores the first time, and seconds where Go's build cache has been kept.
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
source=$here/tests/cluster/kube
case ${1:-new} in new) mod=go tags='' ;; old) mod=old tags=old ;; *) echo "cluster.sh [new|old]" >&2; exit 2 ;; esac
made_of=("$0" "$source"/{main.go,noop.go,$mod.mod,$mod.sum})
if [ $mod = go ]; then made_of+=("$here"/tests/cluster/{helm/go.{mod,sum},otelcol/{main.go,go.{mod,sum}}}); fi
cache=${XDG_CACHE_HOME:-$HOME/.cache}/divvy/cluster-$(cat "${made_of[@]}" | sha256sum | cut -c1-12)
build() { CGO_ENABLED=0 "$here/scripts/go.sh" build -trimpath "$@"; }

mkdir -p "$(dirname "$cache")"
exec 9>"$cache.lock"
flock 9
if ! [ -e "$cache/ready" ]; then
  version=$(sed -n 's/^\tk8s.io\/kubernetes //p' "$source/$mod.mod")
  echo "cluster: building Kubernetes $version into $cache" >&2
  mkdir -p "$cache"
  (cd "$source" && build -modfile=$mod.mod -tags=$tags -ldflags "-s -w -X k8s.io/component-base/version.gitVersion=$version" \
    -o "$cache/kube" .)
  for name in kube-apiserver kube-controller-manager kube-scheduler kubelet kubectl etcd kube-key noop-driver; do ln -sf kube "$cache/$name"; done
  if [ $mod = go ]; then
    (cd "$here/tests/cluster/helm" && build -ldflags '-s -w' -o "$cache/helm" helm.sh/helm/v3/cmd/helm)
    (cd "$here/tests/cluster/otelcol" && build -ldflags '-s -w' -o "$cache/otelcol" .)
  fi
  echo "$version" >"$cache/version"
fi
touch "$cache/ready"
# What another version of this file has left, and nobody has used for a week.
find "$(dirname "$cache")" -maxdepth 2 -path '*/cluster-*/ready' -mtime +7 -printf '%h\0' | xargs -0r rm -rf
echo "$cache"
