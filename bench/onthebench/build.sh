#!/usr/bin/env bash
# Once, before anything is measured: PostgreSQL from the distribution, the gateway and its locked packages beside this file.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

SOURCE=${INFERENCE_GATEWAY_SOURCE:?a URL or a path that git can clone}
REF=${INFERENCE_GATEWAY_REF:-main}

sudo -n DEBIAN_FRONTEND=noninteractive apt-get install -y -q git postgresql python3-venv
[ -d src ] || git clone -q "$SOURCE" src
git -C src fetch -q origin
git -C src checkout -q "$REF"
[ -x venv/bin/python ] || python3 -m venv venv
venv/bin/pip install -q --require-hashes -r src/requirements.txt
echo "build: $(git -C src rev-parse --short HEAD), $(venv/bin/python --version)"
