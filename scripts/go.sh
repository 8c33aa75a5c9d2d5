#!/bin/sh
# Runs Go: `scripts/go.sh build …` is `go build …` with a toolchain new enough for this repository.
# That is the machine's own go where it is new enough or can fetch a newer one itself (1.21 and later do, by
# GOTOOLCHAIN). Else it is fetched through the Go module proxy, by Debian's golang where there is no go at all.
set -eu
want=go1.26.8 # at least what every go.mod here asks for
minor() { minor=${1#go1.}; echo "${minor%%[!0-9]*}"; }
newer() { # is go command $1 new enough, or able and allowed to switch by itself?
  version=$("$1" env GOVERSION 2>/dev/null) || return 1
  case $version in go1.*) minor=$(minor "$version") ;; *) return 1 ;; esac
  [ "$minor" -lt "$(minor $want)" ] || return 0
  [ "$minor" -ge 21 ] || return 1
  case $("$1" env GOTOOLCHAIN) in *auto) ;; *) return 1 ;; esac
}
for go in "${GO:-go}" /usr/local/go/bin/go; do
  if newer "$go"; then exec "$go" "$@"; fi
done
case $(uname -m) in x86_64) arch=amd64 ;; aarch64) arch=arm64 ;; *) echo "go.sh: no toolchain for $(uname -m)" >&2; exit 1 ;; esac
cache=$(realpath -m "${XDG_CACHE_HOME:-$HOME/.cache}/divvy/go")
tool=$cache/pkg/mod/golang.org/toolchain@v0.0.1-$want.linux-$arch
if ! [ -e "$tool/.ready" ]; then
  if ! old=$(command -v go || ls /usr/lib/go-*/bin/go 2>/dev/null | head -n1) || [ -z "$old" ]; then
    [ "$(id -u)" = 0 ] || { echo "go.sh: no go here, and only root can install golang-go" >&2; exit 1; }
    echo "go.sh: installing Debian's golang to fetch $want with" >&2
    apt-get -qq update >&2
    DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends golang-go ca-certificates >/dev/null
    old=$(command -v go)
  fi
  mkdir -p "$cache"
  # Outside any module: an old go does not understand a newer go.mod.
  (cd "$cache" && GOPATH=$cache GOFLAGS=-modcacherw "$old" mod download "golang.org/toolchain@v0.0.1-$want.linux-$arch") >&2
  # A module holds no execute bits.
  chmod +x "$tool"/bin/* "$tool"/pkg/tool/*/* 2>/dev/null || chmod +x "$tool"/bin/*
  : >"$tool/.ready"
fi
unset GOROOT
export GOTOOLCHAIN=local # whatever this machine is bound to
exec "$tool/bin/go" "$@"
