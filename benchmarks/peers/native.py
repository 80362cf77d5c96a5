# SPDX-License-Identifier: Apache-2.0
"""Let Nova use threads, as its scheduler does by default.

Import this module before any other module of Nova.
"""

from nova import monkey_patch

monkey_patch.patch(backend='threading')
