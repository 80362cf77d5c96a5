# SPDX-License-Identifier: Apache-2.0
"""Tools for authors of plug-ins and host applications to test theirs.

``builders`` makes hosts and requests in a line, ``suite`` has the tests that
every plug-in of a kind must pass, ``databases``, ``clock`` and ``clients`` of
messages stand for those of a deployment. It is part of the product: an outside
package may import all of it.
"""
