# SPDX-License-Identifier: Apache-2.0
"""Processes: one module with one ``main`` for each, and nothing else.

``launch`` runs services. To add a process, write its module and name it in
the ``console_scripts`` of ``setup.cfg``.
"""

import gc
import os
import sys

#: New objects after which Python looks for cycles, of which imports make few.
#: No command's imports leave as many: a look at a third of them takes a tenth
#: of its time. Python's own choice is 700.
_NEW_OBJECTS = 300_000

gc.set_threshold(_NEW_OBJECTS)

# oslo.service has it installed, and libraries import it where they find it,
# which takes a tenth of a second and warns of it. They do without.
sys.modules.setdefault('eventlet', None)  # type: ignore[arg-type]

# NumPy's OpenBLAS starts a thread for each CPU when it is imported, and these
# look for work for a tenth of a second. Nothing here multiplies matrices.
os.environ.setdefault('OPENBLAS_NUM_THREADS', '1')
