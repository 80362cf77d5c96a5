#!/bin/bash
# kombu's documentation says that the TLS option server_hostname = None takes
# the name of the broker that is connected to, "useful when failover is used".
# kombu stores the name of the first broker in the caller's options. After a
# fail-over, the certificate of the second broker is compared with the name of
# the first one, so brokers with certificates of their own names cannot take
# over. oslo.messaging passes None if a transport_url has several hosts.
#
# Guess, logged before the run: each broker is checked against its own name,
# as kombu.transport.pyamqp documents.
# Seen: kombu 5.7.0, amqp 5.4.2 (Python 3.11.2): the second broker is refused,
# "certificate is not valid for '127.0.0.1'"; alone, it is accepted.
# Source: kombu's reference, kombu.transport.pyamqp, "Using TLS"; oslo.messaging
# 18.3.1, _drivers/impl_rabbit.py, _get_ssl_server_hostname.
set -eu

directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
python3 -m venv "$directory/venv"
"$directory/venv/bin/pip" -q --disable-pip-version-check install \
    kombu==5.7.0 amqp==5.4.2
cd "$directory"
openssl req -x509 -newkey rsa:2048 -nodes -subj /CN=authority -days 2 \
    -keyout ca.key -out ca.pem 2>/dev/null
for address in 127.0.0.1 127.0.0.2; do
    openssl req -newkey rsa:2048 -nodes -subj "/CN=$address" \
        -keyout "$address.key" -out "$address.csr" 2>/dev/null
    printf 'subjectAltName=IP:%s\n' "$address" >"$address.ext"
    openssl x509 -req -in "$address.csr" -CA ca.pem -CAkey ca.key \
        -CAcreateserial -days 2 -extfile "$address.ext" \
        -out "$address.pem" 2>/dev/null
done

cat >run.py <<'PYTHON'
import importlib.metadata
import socket
import ssl
import sys
import threading

import kombu

FIRST, SECOND = '127.0.0.1', '127.0.0.2'


def serve(listener):
    """Complete TLS handshakes, and close the connections."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(f'{SECOND}.pem', f'{SECOND}.key')
    while True:
        client, _ = listener.accept()
        try:
            context.wrap_socket(client, server_side=True).close()
        except OSError:
            client.close()


def error_of(*addresses):
    """Return the error of the last broker of these."""
    urls = ';'.join(f'amqp://u:p@{address}:{port}//' for address in addresses)
    connection = kombu.Connection(urls, connect_timeout=5, ssl={
        'ca_certs': 'ca.pem', 'cert_reqs': ssl.CERT_REQUIRED,
        'server_hostname': None})
    errors = []
    try:
        connection.ensure_connection(
            max_retries=2, interval_start=0, interval_step=0,
            errback=lambda error, seconds: errors.append(str(error)))
    except Exception as error:
        errors.append(str(error))
    return [each for each in errors if 'refused' not in each][-1]


for name in 'kombu', 'amqp':
    print(name, importlib.metadata.version(name))
# Nobody listens at the port of the first address.
listener = socket.create_server((SECOND, 0))
port = listener.getsockname()[1]
threading.Thread(target=serve, args=(listener,), daemon=True).start()
alone, after = error_of(SECOND), error_of(FIRST, SECOND)
print('the second broker alone:', alone)
print('the second broker after a fail-over:', after)
sys.exit(not (f"not valid for '{FIRST}'" in after
              and 'CERTIFICATE_VERIFY_FAILED' not in alone))
PYTHON
"$directory/venv/bin/python" run.py
