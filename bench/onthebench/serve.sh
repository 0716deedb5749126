#!/usr/bin/env bash
# The gateway with its own PostgreSQL, all on the cores and within the process tree that the rig has given: what the
# ledger costs is measured with it. The database is new each time and listens on PORT + 1. PostgreSQL refuses to run as
# root: then it runs as `postgres`.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

here=$PWD postgres=$(ls -d /usr/lib/postgresql/*/bin | tail -1) port=$((PORT + 1))
rm -rf data spool
mkdir data spool
as=()
if [ "$(id -u)" = 0 ]; then
    as=(setpriv --reuid=postgres --regid=postgres --clear-groups)
    chown postgres:postgres data
fi
"${as[@]}" "$postgres/initdb" -D data -U gateway --auth=trust --no-instructions >/dev/null
"${as[@]}" "$postgres/postgres" -D "$here/data" -p "$port" -c listen_addresses=127.0.0.1 -c unix_socket_directories= &
database=$!
trap 'kill $(jobs -p) 2>/dev/null; wait' EXIT
trap 'exit 143' TERM INT
until "$postgres/pg_isready" -q -h 127.0.0.1 -p "$port" -U gateway -d postgres; do
    kill -0 "$database" 2>/dev/null || { echo "PostgreSQL ended before it accepted a connection on port $port" >&2; exit 1; }
    sleep 0.1
done

export GATEWAY_SPOOL_DIR=$here/spool DATABASE_URL=postgres://gateway@127.0.0.1:$port/postgres WEB_CONCURRENCY
WEB_CONCURRENCY=$(nproc)
cd src
manage() { "$here/venv/bin/python" manage.py "$@" >/dev/null; }
manage migrate --no-input
manage seed_catalogue "$here/catalogue.gen.yaml"
manage create_account bench --credit 1000000
# The rig sends one key, which it names: the gateway's own are random.
manage shell --no-imports --command "
import os
from unittest import mock
from accounts import keys
from accounts.models import Account
with mock.patch.object(keys, 'new_token', return_value=os.environ['BENCH_TOKEN']):
    keys.issue(Account.objects.get(), name='rig', lifetime='never')
"
"$here/venv/bin/gunicorn" -c python:gateway.gunicorn_conf gateway.wsgi &
wait -n
