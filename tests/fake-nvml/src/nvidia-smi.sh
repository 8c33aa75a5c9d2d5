#!/bin/sh
# Stands in for nvidia-smi on a fake host: it knows compute-policy alone, and keeps the time slices
# in files.
root=$(cd "$(dirname "$0")" && pwd -P) || exit 9
until [ -d "$root/.fake-nvml" ]; do
    [ "$root" != / ] || exit 9
    root=$(dirname "$root")
done
slices=$root/.fake-nvml/timeslice
[ "$1" = compute-policy ] || { echo "Invalid combination of input arguments."; exit 2; }
shift
gpu='' set='' list=''
while [ $# -gt 0 ]; do
    case $1 in
    -i) gpu=$2; shift ;;
    -l) list=yes ;;
    --set-timeslice) set=$2; shift ;;
    *) echo "Option \"$1\" is not recognized."; exit 2 ;;
    esac
    shift
done
[ -e "$slices/$gpu" ] || { echo "No devices were found"; exit 6; }
read -r now < "$slices/$gpu"
case $now in
unsupported) echo "Setting time-slice is not supported on GPU $gpu"; exit 3 ;;
hang) exec sleep 600 ;;
esac
if [ -n "$set" ]; then
    case $set in [0-3]) ;; *) echo "Invalid time-slice"; exit 2 ;; esac
    echo "$set" > "$slices/$gpu.new" && mv "$slices/$gpu.new" "$slices/$gpu" || exit 4
    now=$set
fi
[ -n "$list" ] || exit 0
case $now in 0) now=Default ;; 1) now=Short ;; 2) now=Medium ;; *) now=Long ;; esac
echo "Compute policies of GPU $gpu"
echo "    Timeslice : $now"
