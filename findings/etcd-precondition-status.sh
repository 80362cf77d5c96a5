#!/usr/bin/env bash
# Newer builds of etcd answer a failed precondition with HTTP status 400 in
# place of 412. etcd3gw chooses its exceptions by this status, so it raises
# plain Etcd3Exception there and not PreconditionFailedError. Code that catches
# the latter stops working after an upgrade of etcd.
#
# Guess, logged before the run: authenticate() of a server without
# authentication fails with HTTP 400 and Etcd3Exception, as gRPC maps
# FAILED_PRECONDITION (code 9) to 400, on all releases.
# Seen: HTTP 412 and PreconditionFailedError with etcd 3.4.23 (Debian 12), HTTP
# 400 and Etcd3Exception with etcd 3.6.16 (Go module
# go.etcd.io/etcd/server/v3), both with etcd3gw 2.7.0. The code in the body is
# 9 in both. Debian 13's etcd 3.5.16 answers 400, too. gRPC-Gateway changed its
# table between its major versions 1 and 2.
#
# Needs python3 with venv, Debian 12's package etcd-server 3.4, and Go 1.24 or
# later, which builds etcd 3.6.16 in a few minutes.
set -eu

for program in etcd go python3; do
    command -v "$program" >/dev/null || {
        echo "$program is not installed"
        exit 77
    }
done
folder=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null || true; wait; rm -rf "$folder"' EXIT
cd "$folder"

python3 -m venv venv
venv/bin/pip -q install etcd3gw==2.7.0 requests==2.34.2
mkdir build
cat >build/main.go <<'GO'
package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() { etcdmain.Main(os.Args) }
GO
(
    cd build
    go mod init etcd
    go get go.etcd.io/etcd/server/v3@v3.6.16
    go mod tidy
    go build -o etcd .
) >build.log 2>&1 || {
    tail -n 5 build.log
    exit 1
}

cat >ask.py <<'PY'
import sys
import time

import etcd3gw
from etcd3gw import exceptions
import requests

port = int(sys.argv[1])
etcd = etcd3gw.Etcd3Client('127.0.0.1', port, api_path='/v3/', timeout=5)
for _ in range(100):
    try:
        version = etcd.status()['version']
        break
    except exceptions.Etcd3Exception:
        time.sleep(0.1)
path = etcd.get_url('/auth/authenticate')
body = {'name': 'root', 'password': 'example'}
answer = requests.post(path, json=body, timeout=5)
try:
    etcd.post(path, json=body)
except exceptions.Etcd3Exception as exc:
    print(version, answer.status_code, answer.json()['code'],
          type(exc).__name__)
PY

# ask PROGRAM PORT: print version, status, code and exception
ask() {
    local peer=$(($2 + 1))
    "$1" --name one --data-dir "data-$2" --log-level error \
        --listen-client-urls "http://127.0.0.1:$2" \
        --advertise-client-urls "http://127.0.0.1:$2" \
        --listen-peer-urls "http://127.0.0.1:$peer" \
        --initial-advertise-peer-urls "http://127.0.0.1:$peer" \
        --initial-cluster "one=http://127.0.0.1:$peer" >"log-$2" 2>&1 &
    venv/bin/python ask.py "$2" || exit 1
    kill $!
}

port=$(python3 -c 'import socket
with socket.create_server(("127.0.0.1", 0)) as free:
    print(free.getsockname()[1])')
old=$(ask etcd "$port")
new=$(ask build/etcd $((port + 2)))
printf '%s\n' 'version status code exception' "$old" "$new"
case "$old / $new" in
    3.4.*' 412 9 PreconditionFailedError / 3.6.16 400 9 Etcd3Exception') ;;
    *)
        echo 'This differs from what the comment says.'
        exit 1
        ;;
esac
