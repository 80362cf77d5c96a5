# SPDX-License-Identifier: Apache-2.0
"""Processes: one module with one ``main`` for each, and nothing else.

``launch`` runs services. To add a process, write its module and name it in
the ``console_scripts`` of ``setup.cfg``.
"""

import gc
import sys

#: New objects after which Python looks for cycles, of which imports make few.
#: Its own choice is 700, which costs a tenth of the time that they take.
_NEW_OBJECTS = 100_000

gc.set_threshold(_NEW_OBJECTS)

# oslo.service has it installed, and libraries import it where they find it,
# which takes a tenth of a second and warns of it. They do without.
sys.modules.setdefault('eventlet', None)  # type: ignore[arg-type]
