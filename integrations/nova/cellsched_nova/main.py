# SPDX-License-Identifier: Apache-2.0
"""The command ``cellsched-nova-scheduler``, which replaces nova-scheduler."""

import os
import signal
import sys

from cellsched.interrupts import ended_by_interrupts

with ended_by_interrupts():
    from nova import monkey_patch


#: The path in the process title. Probes look for a process with its last part,
#: and the first part shows whose it is.
TITLE = 'cellsched/nova-scheduler'


def main() -> int:
    """Run the scheduler until it is stopped; return an exit code."""
    # The service handles interrupts when it has started.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    # cotyledon names the processes by it.
    sys.argv[0] = TITLE
    # Threads, also if Nova's configuration selects eventlet.
    os.environ['OS_NOVA_DISABLE_EVENTLET_PATCHING'] = 'true'
    monkey_patch.patch()
    # This imports other modules of Nova, so the patch must come first.
    from cellsched_nova import manager

    return manager.run(sys.argv)


if __name__ == '__main__':
    sys.exit(main())
