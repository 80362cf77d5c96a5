# SPDX-License-Identifier: Apache-2.0
"""Imports of the libraries that warn of eventlet, without their warnings.

Nothing here uses eventlet. futurist imports it where it is installed, as it is
where oslo.service is, and it then warns whoever is there; oslo.messaging, and
older releases of oslo.log, import a module of oslo.utils that is deprecated
with it. A host application can mend neither. Packages whose modules import
these libraries import this first. Its own warning filters a host application
keeps.
"""

import contextlib
import importlib
import sys
import warnings

_LIBRARIES = ['oslo_utils.eventletutils']

# Processes of this project's own hide it, and not all of them need futurist.
if sys.modules.get('eventlet', sys) is not None:
    _LIBRARIES.append('futurist')

with warnings.catch_warnings():
    warnings.simplefilter('ignore')
    for _library in _LIBRARIES:
        # The first will be removed one day.
        with contextlib.suppress(ImportError):
            importlib.import_module(_library)
