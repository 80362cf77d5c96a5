# SPDX-License-Identifier: Apache-2.0
"""Options: a module for each group, and nothing that reads them.

Every module has ``GROUP`` and ``OPTS``. To add one, write it and name it in
``opts.GROUPS``. Options of a plug-in are
in the module of the plug-in. There is no global configuration; a component
gets its configuration as an argument.
"""

from cellsched import silence_eventlet  # noqa: F401
