#!/usr/bin/env bash
# Builds both compiled parts with the address and undefined-behaviour sanitizers, in a copy of the sources, and runs the
# tests that drive them. Any finding ends the test run.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
copy=.cache/sanitize

mkdir -p "$copy"
for member in services/storage services/door; do
    mkdir -p "$copy/$member"
    rm -rf "${copy:?}/$member"
    cp -r "$member" "$copy/$member"
    find "$copy/$member" \( -name '*.so' -o -name 'build' -o -name '__pycache__' \) -prune -exec rm -rf {} +
    (cd "$copy/$member" && RAZZO_SANITIZE=1 "$root/.venv/bin/python" setup.py -q build_ext --inplace)
done

# The sanitizer's library has to be there before Python is; CPython keeps memory until its end, which is not a leak of ours.
export PYTHONPATH="$root/$copy/services/storage/src:$root/$copy/services/door/src"
export ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1
export UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1
LD_PRELOAD="$(gcc -print-file-name=libasan.so) $(gcc -print-file-name=libubsan.so)" \
    .venv/bin/python -c "
import razzo.door, razzo.storage
assert '.cache/sanitize' in razzo.storage.__file__ and '.cache/sanitize' in razzo.door.__file__, 'not the sanitized build'
"
LD_PRELOAD="$(gcc -print-file-name=libasan.so) $(gcc -print-file-name=libubsan.so)" \
    .venv/bin/python -m pytest -p no:cacheprovider \
    tests/unit/door_native tests/golden/storage tests/model/storage tests/system/door
