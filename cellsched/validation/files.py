# SPDX-License-Identifier: Apache-2.0
"""The check of files that options and URLs name."""

import os
import stat
from typing import Any

from cellsched import exception


def check(field: str, path: str | os.PathLike[str]) -> None:
    """Make sure that a path names a file that this process can read.

    A container makes an empty directory in the place of a missing file that it
    mounts. Libraries take a directory for no file, or read it as a directory
    of certificates. They ignore some files that are missing.

    :param field: the option, for the error
    :raises cellsched.exception.ConfigurationInvalid: it does not
    """
    try:
        # The open of a pipe would wait for its writer.
        if stat.S_ISREG(os.stat(path).st_mode):
            return open(path, 'rb').close()
        problem = 'is not a file'
    except OSError as exc:
        problem = f'cannot be read: {exc.strerror}'
    except ValueError:
        problem = 'is not the name of a file'
    raise exception.ConfigurationInvalid(
        field=field, problem=f'{path} {problem}',
        expected='the name of a readable file')


def check_tls(group: str, options: Any) -> None:
    """Make sure that the TLS files of a client exist and can be read.

    The library requests reads ``cafile`` with each connection, and accepts a
    directory of certificates in its place.

    :param group: the group of the options
    :param options: has ``cafile``, ``certfile`` and ``keyfile``
    :raises cellsched.exception.ConfigurationInvalid: one does not
    """
    for name in ('cafile', 'certfile', 'keyfile'):
        path = options[name]
        if path and not (
                name == 'cafile' and os.path.isdir(path) and os.listdir(path)):
            check(f'[{group}] {name}', path)
