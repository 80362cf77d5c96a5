# SPDX-License-Identifier: Apache-2.0
"""What plug-ins answer, checked; a failure names the plug-in."""

from collections.abc import Callable
from collections.abc import Iterable
import math
import numbers
from typing import Any
from typing import TypeVar

import numpy as np

from cellsched import exception
from cellsched.filters import base as filters_
from cellsched.hosts import view
from cellsched import objects
from cellsched.weighers import base as weighers_

_Plugin = filters_.Filter | weighers_.Weigher
_Kind = TypeVar('_Kind', filters_.Filter, weighers_.Weigher)
_Answer = TypeVar('_Answer')

_DEFAULTS = (filters_.Filter.applies, weighers_.Weigher.applies)


def ask(
    plugin: _Plugin, question: Callable[..., _Answer], *arguments: Any
) -> _Answer:
    """Return what a plug-in answers.

    :raises cellsched.exception.Invalid: the plug-in found the input bad
    :raises cellsched.exception.PluginFailed: the plug-in failed otherwise
    """
    try:
        return question(*arguments)
    except (exception.Invalid, exception.PluginFailed):
        raise
    except Exception as exc:
        raise exception.PluginFailed(
            plugin=plugin.name, reason=str(exc) or type(exc).__name__) from exc


def applying(
    plugins: Iterable[_Kind], request: objects.RequestSpec
) -> list[_Kind]:
    """Return the plug-ins that apply to a request.

    Those that keep the default, which is to apply, are not asked.
    """
    return [each for each in plugins if type(each).applies in _DEFAULTS
            or ask(each, each.applies, request)]


def mask(
    stage: filters_.Filter, hosts: view.Hosts,
    request: objects.RequestSpec,
) -> view.Mask | None:
    """Return a filter's verdict on every host; None if it keeps them all."""
    answer = ask(stage, stage.keep, hosts, request)
    if answer is None:
        return None
    if not _is_column(answer, 'b', len(hosts)):
        raise exception.PluginFailed(
            plugin=stage.name,
            reason=f'its mask is not an array of {len(hosts)} booleans')
    return answer


def scores(
    weigher: weighers_.Weigher, hosts: view.Hosts,
    request: objects.RequestSpec,
) -> view.Column | None:
    """Return a weigher's score for every host; None if it likes all alike."""
    answer = ask(weigher, weigher.score, hosts, request)
    if answer is None:
        return None
    if not _is_column(answer, 'biuf', len(hosts)):
        raise exception.PluginFailed(
            plugin=weigher.name,
            reason=f'its scores are not an array of {len(hosts)} numbers')
    return answer


def multiplier(
    weigher: weighers_.Weigher, hosts: view.Hosts
) -> float | view.Column:
    """Return a weigher's multiplier, for all hosts or for each."""
    answer = ask(weigher, weigher.multiplier, hosts)
    if type(answer) is float or isinstance(answer, numbers.Real):
        finite = math.isfinite(answer)
    elif _is_column(answer, 'iuf', len(hosts)):
        finite = bool(np.isfinite(answer).all())
    else:
        raise exception.PluginFailed(
            plugin=weigher.name,
            reason='its multiplier is neither a number nor an array of '
                   f'{len(hosts)} numbers')
    if not finite:
        raise exception.PluginFailed(
            plugin=weigher.name, reason='its multiplier is not finite')
    return answer


def _is_column(answer: Any, kinds: str, length: int) -> bool:
    return (isinstance(answer, np.ndarray) and answer.dtype.kind in kinds
            and answer.shape == (length,))
