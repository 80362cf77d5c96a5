# SPDX-License-Identifier: Apache-2.0
"""Commands of cellsched-nova, by a process that has imported Nova already.

Nova's python runs this, see :mod:`tests.integration.commands`.
"""

from nova import monkey_patch

# Nothing of Nova or of the tests may be imported before.
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
