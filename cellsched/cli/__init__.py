# SPDX-License-Identifier: Apache-2.0
"""Commands for people: ``cellsched`` and ``cellsched-manage``.

``app`` has the two applications, ``base`` what their commands share; the
other modules have the commands, one module for each noun. To add a command,
subclass one of ``base``, and name it in the entry points of ``cellsched.cli``
or ``cellsched.manage``, with a dot where people type a space. A command is
imported to show its one line of help, so what is dear is imported when it is
run.
"""
