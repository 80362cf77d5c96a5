# SPDX-License-Identifier: Apache-2.0
"""``cellsched-nova-scheduler``, which is started in nova-scheduler's place."""

import sys

from nova import monkey_patch
from oslo_config import cfg


def main() -> int:
    """Run the scheduler until it is stopped; return an exit code."""
    # Nova has to see to its threads before anything else of it is imported.
    try:
        monkey_patch.patch(backend='threading')
    except cfg.Error as exc:
        # It reads the configuration for that.
        print(f'cannot be honoured: {exc}', file=sys.stderr)
        return 1
    from cellsched_nova import manager

    return manager.run(sys.argv)


if __name__ == '__main__':
    sys.exit(main())
