#!/usr/bin/env bash
# Builds both compiled parts with the address and undefined-behaviour sanitizers, in a copy of the sources, and runs the
# tests that drive them. Any finding ends the test run. MINUTES_MAX bounds the whole; PARTS chooses ("door", "storage").
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
copy=.cache/sanitize
MINUTES_MAX=${MINUTES_MAX:-20}
PARTS=${PARTS:-storage door}

paths=
for part in $PARTS; do
    member=$copy/services/$part
    mkdir -p "$member"
    rm -rf "${member:?}"
    cp -r "services/$part" "$member"
    find "$member" \( -name '*.so' -o -name 'build' -o -name '__pycache__' \) -prune -exec rm -rf {} +
    if [[ $part == door ]]; then
        # what is kept for reuse would hide a use after free
        sed -i 's/^@cython.freelist(.*//; s/META_SPARE_MAX = [0-9]*/META_SPARE_MAX = 1/' "$member"/src/razzo/door/stream.pxi
    fi
    (cd "$member" && RAZZO_SANITIZE=1 "$root/.venv/bin/python" setup.py -q build_ext --inplace)
    paths=$paths:$root/$member/src
done

# The sanitizer's library has to be there before Python is; CPython keeps memory until its end, which is not a leak of ours.
# PYTHONMALLOC: every object is a block of its own, so that a byte past its end is seen. The quarantine is small because
# the fuzzer watches its own size.
export PYTHONPATH=${paths#:}
export PYTHONMALLOC=malloc
export ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1:quarantine_size_mb=2:malloc_context_size=10
export UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1
preload="$(gcc -print-file-name=libasan.so) $(gcc -print-file-name=libubsan.so)"
for part in $PARTS; do
    LD_PRELOAD=$preload .venv/bin/python -c "
import razzo.$part
assert '.cache/sanitize' in razzo.$part.__file__, 'not the sanitized build'
"
done

# Shorter than in the gate: all is 3 to 10 times slower here. Left out: what measures memory, and programs in other
# languages, which the libraries would be loaded into.
export RAZZO_MODEL_SEEDS=${RAZZO_MODEL_SEEDS:-0:10}
export DOOR_FUZZ_INPUTS=${DOOR_FUZZ_INPUTS:-5000}
tests=()
[[ $PARTS == *storage* ]] && tests+=(tests/golden/storage tests/model/storage)
[[ $PARTS == *door* ]] && tests+=(tests/unit/door_native tests/system/door)
LD_PRELOAD=$preload timeout "$((MINUTES_MAX * 60))" \
    .venv/bin/python -m pytest -p no:cacheprovider --timeout 600 "${tests[@]}" \
    --deselect tests/system/door/test_fuzz.py::test_memory_stays_flat_over_many_calls \
    --ignore tests/system/door/test_languages.py --ignore tests/system/door/test_h2spec.py -k "not grpcio"
