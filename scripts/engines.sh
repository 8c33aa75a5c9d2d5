#!/bin/bash
# Brings what the engine tests run on, and prints the folder it is in. Nothing is installed on this machine and no
# service is started: two sets of container engines are unpacked, each a root filesystem of its own.
#   old/  Debian 12:    containerd 1.6, runc 1.1, crun 1.8, podman 4.3, buildah 1.28, docker 20.10, systemd 252
#   new/  Debian forky: containerd 2.1, runc 1.3, crun 1.28, podman 5.8, buildah 1.43, docker 28.5, systemd 262
#   cri   the CRI client of tests/engines/cri
# The folder is ~/.cache/divvy/engines-HASH (XDG_CACHE_HOME), HASH being that of this file: about 20 s the first time.
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/divvy/engines-$(sha256sum "$0" | cut -c1-12)

packages=(containerd runc crun podman buildah docker.io uidmap systemd dbus conmon netavark containernetworking-plugins busybox-static
  golang-github-containers-common golang-github-containers-image bash coreutils mount util-linux iproute2)

say() { echo "engines: $*" >&2; }
die() { say "$*"; exit 3; } # 3: not on this machine

# The Debian mirror that this machine's own apt sources name.
mirror() {
  sed -nE 's/^URIs: *([^ ]+).*/\1/p; s/^deb (\[[^]]*\] )?([^ ]+) .*/\2/p' \
    /etc/apt/sources.list.d/debian.sources /etc/apt/sources.list /etc/apt/sources.list.d/debian.list 2>/dev/null |
    grep -v security | head -n1
}

# unpack SUITE ROOT [PACKAGE…]: the packages with all that they depend on. apt solves that against an empty status file, so that
# what this machine has installed does not count.
unpack() {
  local suite=$1 root=$2 work
  shift 2
  work=$(mktemp -d "$cache.XXXXXX")
  mkdir -p "$work"/{lists/partial,archives/partial}
  : >"$work/status"
  echo "deb $(mirror) $suite main" >"$work/sources.list"
  cat >"$work/apt.conf" <<EOF
Dir::Etc::sourcelist "$work/sources.list";
Dir::Etc::sourceparts "-";
Dir::State::lists "$work/lists";
Dir::State::status "$work/status";
Dir::Cache "$work";
Dir::Cache::archives "$work/archives";
APT::Sandbox::User "root";
Acquire::Languages "none";
Acquire::Retries "3";
EOF
  apt-get -qq -c "$work/apt.conf" update
  apt-get -qq -c "$work/apt.conf" install -y --download-only --no-install-recommends "${packages[@]}" "$@" >/dev/null
  mkdir -p "$work"/root/usr/{bin,sbin,lib,lib64}
  local dir deb
  for dir in bin sbin lib lib64; do ln -s usr/$dir "$work/root/$dir"; done
  for deb in "$work"/archives/*.deb; do
    dpkg-deb --fsys-tarfile "$deb" |
      tar -x --keep-directory-symlink -C "$work/root" --exclude='./usr/share/doc/*' --exclude='./usr/share/man/*' --exclude='./usr/share/locale/*'
  done
  dress "$work/root"
  for deb in containerd runc crun podman buildah docker.io systemd; do
    dpkg-deb -W --showformat='${Package} ${Version}\n' "$work/archives/${deb}"_*.deb
  done | sed 's/[+~-].*//' >"$work/root/versions"
  rm -rf "${root:?}"
  mv "$work/root" "$root"
  rm -rf "$work"
}

# What a package's install script would have made.
dress() {
  local root=$1
  mkdir -p "$root"/{proc,sys,dev,run,tmp,root,oldroot,etc/cni/net.d,etc/cdi,var/lib,var/tmp}
  rm -rf "$root/var/run"
  ln -s /run "$root/var/run"
  ln -sf bash "$root/usr/bin/sh"
  echo 'root:x:0:0:root:/root:/bin/sh' >"$root/etc/passwd"
  echo 'root:x:0:' >"$root/etc/group"
  echo '127.0.0.1 localhost' >"$root/etc/hosts"
  : >"$root/etc/resolv.conf"
  echo engines >"$root/etc/hostname"
}

[ "$(id -u)" = 0 ] || die "only root can set up container engines"
command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null || die "this machine has no apt to fetch engines with"
[ -n "$(mirror)" ] || die "no Debian mirror in this machine's apt sources"

mkdir -p "$(dirname "$cache")"
exec 9>"$cache.lock"
flock 9
trap 'rm -rf "$cache".??????' EXIT # what a failure leaves of unpack's work
if ! [ -e "$cache/ready" ]; then
  mkdir -p "$cache"
  say "unpacking container engines into $cache"
  unpack bookworm "$cache/old" &
  old=$!
  unpack forky "$cache/new" docker-cli # with docker.io until Debian 12
  wait $old
  : >"$cache/ready"
fi
(cd "$here/tests/engines/cri" && CGO_ENABLED=0 "$here/scripts/go.sh" build -trimpath -o "$cache/cri" .)
touch "$cache/ready"
# What another version of this file has left, and nobody has used for a week.
find "$(dirname "$cache")" -maxdepth 2 -path '*/engines-*/ready' -mtime +7 -printf '%h\0' | xargs -0r rm -rf
echo "$cache"
