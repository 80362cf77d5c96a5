# SPDX-License-Identifier: Apache-2.0
"""Memory in huge pages."""

from cellsched.objects import resource_class

PAGE_MB = 1024


class HugePages(resource_class.ResourceClass):
    """Memory in pages of 1 GB, of which a server takes whole ones."""

    word = 'huge pages'
    unit = 'MB'

    def amount_taken(self, amount):
        return -(-amount // PAGE_MB) * PAGE_MB
