# SPDX-License-Identifier: Apache-2.0
"""The outcome of a run, and how it came to that."""

import dataclasses


@dataclasses.dataclass
class SimulationOutcome:
    """The outcome of a run.

    :param failure: the promise that was broken; None if none was
    :param trace: what was done in which order: time, who, and what
    """

    seed: int
    kinds: tuple[str, ...]
    steps: int
    failure: str | None
    trace: list[tuple[float, str, str]]

    def text(self, last: int | None = None) -> str:
        """Return it for people, with so many of the last steps."""
        first = max(len(self.trace) - last, 0) if last else 0
        lines = [f'{number + 1:5} {now:9.3f} {who}: {what}'
                 for number, (now, who, what) in enumerate(self.trace)][first:]
        return '\n'.join([
            *lines, f'seed {self.seed}, faults {", ".join(self.kinds)}, step '
            f'{self.steps}: {self.failure or "all promises were kept"}'])
