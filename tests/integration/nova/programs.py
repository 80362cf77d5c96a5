# SPDX-License-Identifier: Apache-2.0
"""Run commands of cellsched-nova in a process that has imported Nova.

Nova's python runs this script, see :mod:`tests.integration.commands`.
"""

from nova import monkey_patch

# The patch must come before all other imports of Nova and the tests.
monkey_patch.patch(backend='threading')

from cellsched_nova import commands as nova_commands  # noqa: E402
from cellsched_nova import deployment  # noqa: E402, F401
from cellsched_nova import main  # noqa: E402
from cellsched_nova import manager  # noqa: E402, F401
from cellsched_nova.shadow import commands as shadow_commands  # noqa: E402
from cellsched_nova.shadow import scheduler  # noqa: E402, F401
from tests.integration import commands  # noqa: E402

if __name__ == '__main__':
    commands.serve({
        'cellsched-nova': nova_commands.main,
        'cellsched-nova-scheduler': main.main,
        'cellsched-nova-shadow': shadow_commands.main})
