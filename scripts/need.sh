#!/bin/sh
# Installs the Debian packages named that are missing: need.sh PACKAGE…
# Quiet and quick when nothing is missing, so that every target can call it.
set -eu
missing=
for package in "$@"; do
  dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing="$missing $package"
done
[ -n "$missing" ] || exit 0
if [ "$(id -u)" != 0 ]; then
  echo "need.sh: missing packages:$missing; install them, or run this as root" >&2
  exit 1
fi
echo "installing$missing" >&2
export DEBIAN_FRONTEND=noninteractive
# Services of the packages stay down: nothing here wants a system daemon.
policy=/usr/sbin/policy-rc.d
if [ ! -e $policy ]; then
  printf '#!/bin/sh\nexit 101\n' >$policy && chmod +x $policy
  trap 'rm -f $policy' EXIT
fi
log=$(mktemp)
# shellcheck disable=SC2086
if ! { apt-get -qq update && apt-get -qq install -y --no-install-recommends $missing; } >"$log" 2>&1; then
  cat "$log" >&2
  exit 1
fi
rm -f "$log"
