# SPDX-License-Identifier: Apache-2.0
"""Processes that claim concurrently, or stop during a claim."""

import contextlib
import multiprocessing
from multiprocessing import forkserver
import sys
import threading

import sqlalchemy as sa

from cellsched.claims import sql
from cellsched import clock
from cellsched.db import guarded_statements
from cellsched.db import session
from cellsched import exception

#: Processes that begin with what this module imports, and nothing else of the
#: test's.
_FORKED = multiprocessing.get_context('forkserver')
_FORKED.set_forkserver_preload([__name__])


def prepare():
    """Start the fork server, outside of the directory of a test."""
    forkserver.ensure_running()


@contextlib.contextmanager
def process(function, *args):
    """Run a function in a process that is killed at the end.

    :param function: receives a connection to the test, and the arguments
    :returns: the process, and the connection to it
    """
    ours, theirs = _FORKED.Pipe()
    running = _FORKED.Process(
        target=function, args=(theirs, *args), daemon=True)
    running.start()
    theirs.close()
    try:
        yield running, ours
    finally:
        running.kill()
        running.join()
        ours.close()


def claim_each(pipe, url, options):
    """Claim each received batch, and send the outcome."""
    database = session.Database(url, 'claims', options, clock=clock.Clock())
    store = sql.SQLClaims(database)
    store.check()
    pipe.send(None)
    with contextlib.suppress(EOFError):
        while True:
            batch = pipe.recv()
            try:
                store.claim(batch)
            except exception.ClaimRefused as exc:
                pipe.send(exc.kwargs)
            else:
                pipe.send(None)


def claim_until(pipe, url, options, number, batch):
    """Claim a batch, but stop before one of its statements.

    A commit, and a transaction of one message, count as a statement. Sends
    True when it has stopped, or False if the claim had fewer statements.
    """
    database = session.Database(url, 'claims', options, clock=clock.Clock())
    store = sql.SQLClaims(database)
    store.check()
    remaining = [number]

    def count(*args):
        remaining[0] -= 1
        if not remaining[0]:
            pipe.send(True)
            threading.Event().wait()

    for name in 'before_cursor_execute', 'commit':
        sa.event.listen(database.engine, name, count)
    execute = guarded_statements.execute
    guarded_statements.execute = lambda *args, **options: (
        count() or execute(*args, **options))
    store.claim(batch)
    pipe.send(False)
    sys.exit()
