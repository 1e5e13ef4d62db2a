#!/usr/bin/env bash
# Installs what the build needs and this machine lacks: Debian packages (with sudo when not root) and uv.
# Does nothing, fast, when everything is there.
set -euo pipefail
cd "$(dirname "$0")/.."

has_python_headers() {
    python3 -c 'import os, sys, sysconfig; sys.exit(not os.path.exists(sysconfig.get_path("include") + "/Python.h"))'
}

installed() {
    dpkg-query --show --showformat='${Status}' "$1" 2>/dev/null | grep -q 'ok installed'
}

missing=()
for package in libnghttp2-dev libdeflate-dev nghttp2-client; do
    installed "$package" || missing+=("$package")
done
command -v cc >/dev/null || missing+=(build-essential)
command -v git >/dev/null || missing+=(git)
has_python_headers || missing+=(python3-dev)
if ! command -v uv >/dev/null && [ ! -x .cache/tools/bin/uv ]; then
    python3 -c 'import ensurepip, venv' 2>/dev/null || missing+=(python3-venv)
fi

if [ ${#missing[@]} -gt 0 ]; then
    as_root=()
    if [ "$(id -u)" -ne 0 ]; then
        command -v sudo >/dev/null || { echo "neither root nor sudo; install: ${missing[*]}" >&2; exit 1; }
        as_root=(sudo)
    fi
    echo "installing ${missing[*]}"
    export DEBIAN_FRONTEND=noninteractive
    "${as_root[@]}" apt-get update -qq
    "${as_root[@]}" apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
fi

if ! command -v uv >/dev/null && [ ! -x .cache/tools/bin/uv ]; then
    echo "installing uv into .cache/tools"
    python3 -m venv .cache/tools
    .cache/tools/bin/pip install --quiet uv
fi
