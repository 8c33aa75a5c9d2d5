#!/bin/sh
# Prints the chart as plain manifests: chart.sh [HELM OPTION…]
set -eu
cd "$(dirname "$0")/.."
helm=$(./scripts/cluster.sh)/helm
cat <<'YAML'
# The chart's objects for those who have no helm, made by `make chart`; a test says when they are stale.
apiVersion: v1
kind: Namespace
metadata:
  name: divvy
YAML
# It knows no cluster here: the oldest that the chart is for.
exec "$helm" template divvy deploy/chart --namespace divvy --kube-version 1.34.0 "$@"
