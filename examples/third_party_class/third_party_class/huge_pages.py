# SPDX-License-Identifier: Apache-2.0
"""A resource class for memory in huge pages."""

from cellsched.objects import resource_class

PAGE_MB = 1024


class HugePages(resource_class.ResourceClass):
    """Memory in pages of 1 GB; amounts are rounded up to whole pages."""

    word = 'huge pages'
    unit = 'MB'

    def amount_taken(self, amount):
        return -(-amount // PAGE_MB) * PAGE_MB
