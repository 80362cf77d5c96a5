# SPDX-License-Identifier: Apache-2.0
"""Has Nova work with threads, as its scheduler does by default.

Import it before anything else of Nova.
"""

from nova import monkey_patch

monkey_patch.patch(backend='threading')
