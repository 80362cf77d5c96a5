# SPDX-License-Identifier: Apache-2.0
"""Tests of the package, in threads as its processes are."""

import os

from nova import monkey_patch

# Nova's own tests would choose otherwise, and who is first chooses for all.
os.environ['OS_NOVA_DISABLE_EVENTLET_PATCHING'] = 'true'
monkey_patch.patch()
