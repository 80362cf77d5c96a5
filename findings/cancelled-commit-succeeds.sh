#!/usr/bin/env bash
# A COMMIT that waits for a synchronous standby of PostgreSQL and is cancelled
# by pg_cancel_backend() succeeds: the client gets no error, only a warning
# that drivers do not show by default. The commit is not on the standby, so a
# failover loses what the client was told is durable. A statement_timeout does
# not end this wait at all.
#
# Guess, logged before the run: commit() raises QueryCanceled (57014), and a
# statement_timeout of the transaction ends the wait with the same error.
# Seen: PostgreSQL 15.18 (Debian 12) and psycopg 3.3.2: commit() returns, the
# row is there, and the only trace is a notice of SQLSTATE 01000. With a
# statement_timeout of one second, the commit still waits after three.
#
# Needs python3 with venv and Debian 12's package postgresql. As root, the
# server runs as the user postgres.
set -eu

programs=/usr/lib/postgresql/15/bin
[ -x "$programs/initdb" ] || {
    echo 'PostgreSQL 15 is not installed'
    exit 77
}
folder=$(mktemp -d)
as_user=''
if [ "$(id -u)" = 0 ]; then
    as_user='setpriv --reuid=postgres --regid=postgres --clear-groups'
fi
stop() {
    $as_user "$programs/pg_ctl" -D "$folder/data" -m immediate stop >stopped \
        2>&1 || true
    rm -rf "$folder"
}
trap stop EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip --quiet --disable-pip-version-check install \
    'psycopg[binary]==3.3.2'
[ -z "$as_user" ] || chown postgres "$folder"
$as_user "$programs/initdb" --pgdata=data --auth=trust --username=postgres \
    --no-sync >initdb.log
cat >>data/postgresql.conf <<CONF
listen_addresses = ''
unix_socket_directories = '$folder'
synchronous_standby_names = '*'
CONF
$as_user "$programs/pg_ctl" -D data -l "$folder/log" -w start >started

venv/bin/python - "$folder" <<'PYTHON'
import sys
import threading
import time

import psycopg

place = f'host={sys.argv[1]} user=postgres'
WAITS = ("SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep' "
         'AND pid = %s')


def connect():
    return psycopg.connect(place, autocommit=True)


def waits(administrator, pid):
    [(count,)] = administrator.execute(WAITS, (pid,)).fetchall()
    return bool(count)


administrator = connect()
administrator.execute("SET synchronous_commit = 'local'")
administrator.execute('CREATE TABLE rows_ (number int)')
[(version,)] = administrator.execute('SHOW server_version').fetchall()
print('PostgreSQL', version, 'psycopg', psycopg.__version__)

client, notices, errors = psycopg.connect(place), [], []
client.add_notice_handler(lambda notice: notices.append(notice.sqlstate))


def commit():
    try:
        client.execute("SET LOCAL statement_timeout = '1s'")
        client.execute('INSERT INTO rows_ VALUES (1)')
        client.commit()
    except psycopg.Error as exc:
        errors.append(exc)


thread = threading.Thread(target=commit)
thread.start()
pid = client.info.backend_pid
deadline = time.monotonic() + 30
while not waits(administrator, pid) and time.monotonic() < deadline:
    time.sleep(0.1)
time.sleep(3)
still = waits(administrator, pid)
administrator.execute('SELECT pg_cancel_backend(%s)', (pid,))
thread.join(30)
[(rows,)] = administrator.execute('SELECT count(*) FROM rows_').fetchall()
print('waits after its statement_timeout:', still)
print('errors:', errors, 'notices:', notices, 'rows:', rows)
if not still or errors or notices != ['01000'] or rows != 1:
    sys.exit('This differs from what the comment says.')
PYTHON
