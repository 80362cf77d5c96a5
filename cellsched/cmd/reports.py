# SPDX-License-Identifier: Apache-2.0
"""Reports on a running process: the guru meditation reports of OpenStack."""

from collections.abc import Callable
from collections.abc import Mapping
from importlib import metadata
import json
import signal
import threading
from typing import Any

from oslo_config import cfg

#: The signals at which a service writes a report, if
#: ``[oslo_reports] file_event_handler`` names no file to watch instead.
SIGNALS = (signal.SIGUSR1, signal.SIGUSR2)


#: Titles of the sections of this project, and what returns their text.
_sections: list[tuple[str, Callable[[], Any]]] = []


def _report() -> Any:
    """Return the report: threads, processes, options, and these sections."""
    # Few processes need the library, and to import it takes CPU.
    from oslo_reports import guru_meditation_report

    class Report(guru_meditation_report.TextGuruMeditation):
        """A report of one process."""

        persistent_sections = _sections

    return Report


class _Package:
    """The name and the version of this project, for reports."""

    @staticmethod
    def vendor_string() -> str:
        return 'cellsched'

    product_string = vendor_string

    @staticmethod
    def version_string_with_package() -> str:
        return metadata.version('cellsched')


def register(conf: cfg.ConfigOpts, program: str) -> None:
    """Write a report at a signal, to ``[oslo_reports] log_dir`` or stderr.

    Call this in the main thread; processes that are forked later do the same.

    :param program: the name of the program, for the name of the file
    """
    def options() -> Any:
        # As above.
        from oslo_reports.generators.conf import ConfigReportGenerator

        return ConfigReportGenerator(conf)()

    # The section of the library shows the global configuration.
    _sections.append((f'Options of {program}', options))
    if conf.oslo_reports.file_event_handler:
        _report().setup_autorun(_Package, program, conf=conf)
        return

    writing = threading.Lock()

    def write() -> None:
        # The outputs of two reports would mix.
        with writing:
            _report().handle_signal(
                _Package, program, conf.oslo_reports.log_dir, None)

    def start(number: int, frame: Any) -> None:
        # The interrupted thread may hold a lock that the report needs.
        threading.Thread(target=write, daemon=True, name='report').start()

    for each in SIGNALS:
        signal.signal(each, start)


def add_state(state: Callable[[], Mapping[str, Any]]) -> None:
    """Add the state of the service in this process to the reports.

    :param state: returns values that JSON has, by title
    """
    _sections.append(('State', lambda: json.dumps(
        state(), indent=2, default=str) + '\n'))
