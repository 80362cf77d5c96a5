# SPDX-License-Identifier: Apache-2.0
"""A process that tidies up after a test process that was killed.

It is told on its standard input, line by line, what runs and what lies
about. When the input ends, the test process is gone, and what it did not take
back is stopped and removed here. It imports nothing outside the standard
library, so that it starts at once.

The lines are ``process <id of its group> <signal that stops it>``,
``directory <path>``, and the same with ``not`` before it.
"""

import os
import shutil
import signal
import sys
import time

#: Until a process that does not stop is killed.
STOP_TIMEOUT_S = 5.0


def main() -> None:
    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, signal.SIG_IGN)
    kept: dict[str, dict[str, str]] = {'process': {}, 'directory': {}}
    for line in sys.stdin:
        words = line.rstrip('\n').split(' ', 2)
        if words[0] == 'not':
            kept[words[1]].pop(words[2], None)
        elif words[0] == 'process':
            kept['process'][words[1]] = words[2]
        else:
            kept['directory'][line.rstrip('\n').partition(' ')[2]] = ''
    _stop({int(group): int(number)
           for group, number in kept['process'].items()})
    for directory in kept['directory']:
        shutil.rmtree(directory, ignore_errors=True)


def _stop(groups: dict[int, int]) -> None:
    running = [group for group, number in reversed(groups.items())
               if send(group, number)]
    deadline = time.monotonic() + STOP_TIMEOUT_S
    while time.monotonic() < deadline:
        running = [group for group in running if send(group, 0)]
        if not running:
            return
        time.sleep(0.05)
    for group in running:
        send(group, signal.SIGKILL)


def send(group: int, number: int) -> bool:
    """Send a signal; return whether there was anyone to get it."""
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        return False
    return True


if __name__ == '__main__':
    main()
