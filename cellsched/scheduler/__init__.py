# SPDX-License-Identifier: Apache-2.0
"""The scheduler: which host takes a request, and why not the others.

``pipeline`` decides and ``diagnosis`` explains; both are pure. ``capacity``
is what the pipeline asks of every host before any filter.
"""
