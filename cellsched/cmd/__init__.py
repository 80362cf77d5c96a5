# SPDX-License-Identifier: Apache-2.0
"""Processes: one module with one ``main`` for each, and nothing else.

``launch`` runs services. To add a process, write its module and name it in
the ``console_scripts`` of ``setup.cfg``.
"""

import sys
import warnings

if not sys.warnoptions:
    # Who runs this cannot mend it. Python hides other warnings of this kind.
    warnings.filterwarnings('ignore', r'\s*Eventlet is deprecated')

from oslo_service import backend  # noqa: E402

# Libraries pick one when they are imported, unless it is chosen before.
backend.init_backend(backend.BackendType.THREADING)
