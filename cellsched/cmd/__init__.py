# SPDX-License-Identifier: Apache-2.0
"""Processes: one module with one ``main`` for each, and nothing else.

``launch`` runs services. To add a process, write its module and name it in
the ``console_scripts`` of ``setup.cfg``.
"""

import gc
import os
import sys
from typing import NoReturn

from cellsched.interrupts import ended_by_interrupts

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


def run_command(application: str) -> NoReturn:
    """Run a command as this process, and end it.

    :param application: the name of a class in ``cli.app``
    """
    with ended_by_interrupts():
        # Imported late, as it imports the libraries of all commands.
        from cellsched.cli import app

    app.main(getattr(app, application))
