# SPDX-License-Identifier: Apache-2.0
"""Tests of the package, with threads as in its processes."""

import os

from nova import monkey_patch

# The first patch counts; Nova's own tests would patch for eventlet.
os.environ['OS_NOVA_DISABLE_EVENTLET_PATCHING'] = 'true'
monkey_patch.patch()
