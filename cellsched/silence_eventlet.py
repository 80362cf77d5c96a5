# SPDX-License-Identifier: Apache-2.0
"""Import of libraries that import eventlet, without it and its warnings.

The product does not use eventlet. If eventlet is installed, as it is with
oslo.service, futurist and oslo.messaging import it, which takes longer than
all modules of the product, and Python shows a warning. oslo.messaging and old
releases of oslo.log also import a deprecated module of oslo.utils. So packages
that import these libraries import this module first. The warning filters of a
host application do not change, and it can import eventlet later. A host
application that uses eventlet imports it before this package, because it must
patch modules first; then the libraries use it.
"""

import contextlib
import importlib
import sys
import warnings

_LIBRARIES = ['oslo_utils.eventletutils']

_ABSENT = 'eventlet' not in sys.modules

# Processes of this project hide eventlet, and not all of them need these.
if _ABSENT or sys.modules['eventlet']:
    _LIBRARIES += ['futurist', 'oslo_messaging']

if _ABSENT:
    sys.modules['eventlet'] = None  # type: ignore[assignment]

with warnings.catch_warnings():
    warnings.simplefilter('ignore')
    for _library in _LIBRARIES:
        # The first will be removed one day.
        with contextlib.suppress(ImportError):
            importlib.import_module(_library)

if _ABSENT:
    del sys.modules['eventlet']
