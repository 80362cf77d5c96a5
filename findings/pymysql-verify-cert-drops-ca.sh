#!/usr/bin/env bash
# Adding ssl_verify_cert=true to a URL of SQLAlchemy for PyMySQL turns a
# connection that was checked against ssl_ca into one that is checked against
# the authorities of the system. SQLAlchemy collects ssl_ca into the dictionary
# "ssl", passes ssl_verify_cert on as it is, and PyMySQL then replaces the
# dictionary by one that it makes of its own arguments, without the authority.
#
# Guess, logged before the run: ssl_ca=FILE&ssl_verify_cert=true checks the
# certificate against FILE; without ssl_verify_cert it may not be checked.
# Seen: SQLAlchemy 2.1.9, PyMySQL 1.2.4: with ssl_ca alone the authority is
# loaded and the certificate is required; with ssl_verify_cert, or with
# ssl_verify_identity, the authority is not loaded. A server of a private
# authority is then refused with CERTIFICATE_VERIFY_FAILED.
set -eu

here=$(mktemp -d)
trap 'rm -rf "$here"' EXIT
cd "$here"
python3 -m venv venv
venv/bin/pip --quiet --disable-pip-version-check install \
    'SQLAlchemy==2.1.9' 'PyMySQL==1.2.4'
openssl req -x509 -newkey rsa:2048 -nodes -subj /CN=private-authority \
    -days 2 -keyout key.pem -out ca.pem 2>/dev/null

venv/bin/python - <<'PYTHON'
from importlib import metadata
import ssl
import sys

import pymysql
import sqlalchemy
from sqlalchemy.dialects.mysql import pymysql as dialect

for name in 'SQLAlchemy', 'PyMySQL':
    print(name, metadata.version(name))
seen = []
contexts = []
create = ssl.create_default_context


def record(*args, **options):
    contexts.append(create(*args, **options))
    return contexts[-1]


ssl.create_default_context = record
for more in ('', '&ssl_verify_cert=true', '&ssl_verify_identity=true'):
    url = sqlalchemy.make_url(
        f'mysql+pymysql://user:secret@127.0.0.1/db?ssl_ca=ca.pem{more}')
    args, options = dialect.dialect().create_connect_args(url)
    pymysql.connect(*args, **options, defer_connect=True)
    context = contexts[-1]
    names = [dict(pair for [pair] in each['subject']).get('commonName')
             for each in context.get_ca_certs()]
    seen.append(('private-authority' in names, context.verify_mode.name))
    print(f'ssl_ca=ca.pem{more}: authority loaded: {seen[-1][0]}, '
          f'{seen[-1][1]}')
expected = [(True, 'CERT_REQUIRED'), (False, 'CERT_REQUIRED'),
            (False, 'CERT_REQUIRED')]
sys.exit(0 if seen == expected else 'the behaviour has changed')
PYTHON
