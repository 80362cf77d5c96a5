# SPDX-License-Identifier: Apache-2.0
"""Doing things at the same time."""

from concurrent import futures
import threading


def race(*functions):
    """Call functions at the same time; return what each returned or raised."""
    start = threading.Barrier(len(functions))

    def run(function):
        start.wait()
        try:
            return function()
        except Exception as exc:
            return exc

    with futures.ThreadPoolExecutor(len(functions)) as threads:
        return list(threads.map(run, functions))
