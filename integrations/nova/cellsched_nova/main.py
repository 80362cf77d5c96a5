# SPDX-License-Identifier: Apache-2.0
"""The command ``cellsched-nova-scheduler``, which replaces nova-scheduler."""

import sys

from nova import monkey_patch
from oslo_config import cfg


def main() -> int:
    """Run the scheduler until it is stopped; return an exit code."""
    # Nova must patch the threads before any other module of it is imported.
    try:
        monkey_patch.patch(backend='threading')
    except cfg.Error as exc:
        # The patch reads the configuration.
        print(f'invalid configuration: {exc}', file=sys.stderr)
        return 1
    from cellsched_nova import manager

    return manager.run(sys.argv)


if __name__ == '__main__':
    sys.exit(main())
