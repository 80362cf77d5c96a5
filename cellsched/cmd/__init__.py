# SPDX-License-Identifier: Apache-2.0
"""Processes: one module with one ``main`` for each, and nothing else.

``launch`` runs services. To add a process, write its module and name it in
the ``console_scripts`` of ``setup.cfg``.
"""

import gc
import os
import sys

#: New objects after which Python collects cyclic garbage; its default is 700.
#: Imports make few cycles, and no command imports as many objects. With a
#: third of this number, the collection takes a tenth of a command's time.
_NEW_OBJECTS = 300_000

gc.set_threshold(_NEW_OBJECTS)

# oslo.service requires eventlet, and libraries import it if it is installed.
# That takes a tenth of a second and prints a warning. They work without it.
sys.modules.setdefault('eventlet', None)  # type: ignore[arg-type]

# When NumPy is imported, OpenBLAS starts a thread for each CPU, which polls
# for a tenth of a second. This project multiplies no matrices.
os.environ.setdefault('OPENBLAS_NUM_THREADS', '1')
