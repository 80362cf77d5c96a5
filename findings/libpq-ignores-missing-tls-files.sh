#!/bin/bash
# An operator who names a file of authorities in a PostgreSQL URL expects that
# the server is checked against it, or an error. With sslmode=require, libpq
# checks the server only if the file of sslrootcert exists. If it is missing,
# as after the mount of a wrong volume, libpq connects to any server. A file of
# revoked certificates (sslcrl) that is missing, or a directory in its place,
# is ignored with every sslmode, even with verify-ca.
#
# Guess, logged before the run: a missing sslrootcert is ignored with
# sslmode=require; a missing sslcrl is ignored, too.
# Seen: psycopg 3.3.9 with libpq 18.0.6 (and a PostgreSQL 15 server): as
# guessed, and a directory as sslcrl is ignored, while a directory as
# sslrootcert is an error.
# Source: PostgreSQL's documentation of libpq, "Client verification of server
# certificates"; "sslcrl" says "if it exists", and nothing of directories.
set -eu

directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
python3 -m venv "$directory/venv"
"$directory/venv/bin/pip" -q --disable-pip-version-check install \
    'psycopg[binary]==3.3.9'
cd "$directory"
mkdir empty
for name in server other; do
    openssl req -x509 -newkey rsa:2048 -nodes -subj "/CN=$name" -days 2 \
        -keyout "$name.key" -out "$name.pem" 2>/dev/null
done

cat >run.py <<'PYTHON'
import socket
import ssl
import sys
import threading

import psycopg

CLEARTEXT_PASSWORD = b'R\0\0\0\x08\0\0\0\x03'

passwords = []


def serve(listener):
    """Ask each client that completes the TLS handshake for its password."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain('server.pem', 'server.key')
    while True:
        client, _ = listener.accept()
        try:
            client.recv(8)
            client.sendall(b'S')
            secure = context.wrap_socket(client, server_side=True)
            secure.recv(1000)
            secure.sendall(CLEARTEXT_PASSWORD)
            passwords.append(secure.recv(1000))
            secure.close()
        except OSError:
            client.close()


def trusts(query):
    """Return whether a client sends its password to the server."""
    passwords.clear()
    try:
        psycopg.connect(f'postgresql://u:secret@127.0.0.1:{port}/d?'
                        f'gssencmode=disable&connect_timeout=5&{query}')
    except psycopg.OperationalError:
        pass
    return any(b'secret' in each for each in passwords)


print('psycopg', psycopg.__version__, 'libpq', psycopg.pq.version())
listener = socket.create_server(('127.0.0.1', 0))
port = listener.getsockname()[1]
threading.Thread(target=serve, args=(listener,), daemon=True).start()
seen = {query: trusts(query) for query in (
    'sslmode=require&sslrootcert=other.pem',
    'sslmode=require&sslrootcert=missing.pem',
    'sslmode=require&sslrootcert=empty',
    'sslmode=verify-ca&sslrootcert=missing.pem',
    'sslmode=verify-ca&sslrootcert=server.pem&sslcrl=missing.pem',
    'sslmode=verify-ca&sslrootcert=server.pem&sslcrl=empty')}
for query, is_trusted in seen.items():
    print(f'{query}: {"password sent" if is_trusted else "refused"}')
sys.exit([*seen.values()] != [False, True, False, False, True, True])
PYTHON
"$directory/venv/bin/python" run.py
