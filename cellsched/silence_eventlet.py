# SPDX-License-Identifier: Apache-2.0
"""Import of libraries that warn about eventlet, without their warnings.

The product does not use eventlet. If eventlet is installed, as it is with
oslo.service, futurist imports it and Python shows a warning; oslo.messaging
and old releases of oslo.log import a deprecated module of oslo.utils. A host
application cannot prevent these warnings, so packages that import these
libraries import this module first. The warning filters of the host application
do not change.
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
