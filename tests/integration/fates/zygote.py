# SPDX-License-Identifier: Apache-2.0
"""Starts services that die where they are told to, as processes of their own.

It reads orders from its standard input and writes what becomes of them, each
a line of JSON. A service is forked from it, which takes no time, and kills
itself with SIGKILL, or another signal, when its task has come to a step.
"""

import json
import logging
import os
import select
import signal
import sys
import threading

from cellsched.conf import loader
from cellsched import context
from cellsched.wiring import services

#: What a process has to do with, for the user of the tests.
USER = context.member('demo', 'demo')


def main():
    children = {}
    unread = b''
    while True:
        readable, _, _ = select.select([0], [], [], 0.02)
        if readable:
            read = os.read(0, 65536)
            if not read:
                break
            *lines, unread = (unread + read).split(b'\n')
            for line in lines:
                order = json.loads(line)
                children[fork(order)] = order['number']
        reap(children)
    for pid in children:
        os.kill(pid, signal.SIGKILL)


def fork(order):
    pid = os.fork()
    if not pid:
        try:
            serve(order)
        finally:
            os._exit(1)
    send('forked', order['number'], pid=pid)
    return pid


def reap(children):
    while children:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if not pid:
            break
        send('ended', children.pop(pid), killed=os.WIFSIGNALED(status)
             and os.WTERMSIG(status) == signal.SIGKILL)


def serve(order):
    # Orders are the parent's to read.
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    log = os.open(order['log'], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 2)
    logging.basicConfig(
        level=logging.INFO, format='%(asctime)s %(levelname)s %(name)s '
        '%(message)s')
    conf = loader.load(files=order['files'], dirs=[])
    parts = services.Components(conf, reached=dying(order))
    made = getattr(services, order['service'])(conf, parts)
    if order['service'] == 'api':
        getattr(made.servers, order['call'])(USER, **order['arguments'])
        os._exit(0)
    made.start()
    send('started', order['number'])
    threading.Event().wait()


def dying(order):
    """Return what kills this process at a step, the so-and-so-manieth time.

    With SIGSTOP it is stopped.
    """
    left = [order.get('times', 1)]

    def reached(step):
        if step == order.get('die_at'):
            left[0] -= 1
            if not left[0]:
                os.kill(os.getpid(), order.get('signal', signal.SIGKILL))
    return reached


def send(what, number, **more):
    line = json.dumps({'what': what, 'number': number, **more}) + '\n'
    os.write(1, line.encode())


if __name__ == '__main__':
    sys.exit(main())
