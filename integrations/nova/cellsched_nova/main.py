# SPDX-License-Identifier: Apache-2.0
"""The command ``cellsched-nova-scheduler``, which replaces nova-scheduler."""

import sys

from nova import monkey_patch
from oslo_config import cfg


def main() -> int:
    """Run the scheduler until it is stopped; return an exit code."""
    try:
        monkey_patch.patch(backend='threading')
    except cfg.Error as exc:
        # The patch reads the configuration.
        print(f'invalid configuration: {exc}', file=sys.stderr)
        return 1
    # This imports other modules of Nova, so the patch must come first.
    from cellsched_nova import manager

    return manager.run(sys.argv)


if __name__ == '__main__':
    sys.exit(main())
