"""Every error that Listwright raises on purpose.

::

    ListwrightError
    ├── CandidateError           one query's candidates cannot be used; carries the path to the bad value
    │   └── EmptyListError       there are none
    ├── SchemaMismatchError      well-formed, but not what the served bundle was fitted on
    ├── UnknownStrategyError     the bundle holds no such ranker
    │   ├── UnknownSpecialistError   nor one of that number
    │   └── UnknownGoalError         nor one for that goal
    ├── ExplanationError         nothing ranked the candidates in time, so that there is nothing to explain
    ├── RoutingError             a router could not decide; the next one does, and it is counted
    ├── ScoringError             a stage ran and did not give finite scores
    ├── AbandonedError           nobody waits for the answer any more
    ├── BundleError              a bundle cannot be trusted: which file, and why
    │   └── BundleFormatError    written by a newer Listwright
    ├── DataError                training data cannot be read: file, line, column, what was expected
    └── RecipeError              a recipe, or a combination of options, cannot be run

Messages name the value, the place and the remedy. Anything else that escapes is a bug.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any


def plain_text(text: str) -> str:
    """Return text that may come from data for a terminal: control characters as dots, no-break spaces as they are."""
    return "".join(letter if letter.isprintable() or letter == "\u00a0" else "·" for letter in text)


class ListwrightError(Exception):
    """Base of every deliberate error; each can be pickled, to cross processes."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Return how to restore the error from its message and attributes, whatever arguments its class takes."""
        return _again, (type(self), self.args, self.__dict__)


def _again(kind: type[ListwrightError], args: tuple[Any, ...], attributes: dict[str, Any]) -> ListwrightError:
    error = kind.__new__(kind, *args)
    error.__dict__.update(attributes)
    return error


class CandidateError(ListwrightError):
    """The candidates of one query cannot be used.

    Args:
        message: Fault of the value, and what was expected.
        path: Place of the value, as JSON path segments below the request, e.g.
            ``("candidates", 3, "features", "price")``.
    """

    def __init__(self, message: str, path: tuple[str | int, ...] = ()) -> None:
        super().__init__(message)
        self.message = message
        self.path = path


class EmptyListError(CandidateError):
    """A list without candidates has no order."""


class SchemaMismatchError(ListwrightError):
    """The candidates are well-formed but do not fit the feature schema.

    Args:
        message: Difference to the schema, by name.
        expected: Names (or the fingerprint) that the bundle was fitted on.
        sent: Names (or the fingerprint) that arrived.
        path: Place in the request, as JSON path segments; None if it is not in one place.
    """

    def __init__(
        self,
        message: str,
        *,
        expected: tuple[str, ...] = (),
        sent: tuple[str, ...] = (),
        path: tuple[str | int, ...] | None = None,
    ) -> None:
        super().__init__(message)
        self.expected = expected
        self.sent = sent
        self.path = path


class UnknownStrategyError(ListwrightError):
    """The strategy asked for is not in the bundle."""


class UnknownSpecialistError(UnknownStrategyError):
    """The specialist asked for is not in the bundle."""


class UnknownGoalError(UnknownStrategyError):
    """A goal of the weights is not in the bundle, or there are no weights above 0."""


class ExplanationError(ListwrightError):
    """There is nothing to explain: no stage ranked the candidates, or none did before the deadline."""


class RoutingError(ListwrightError):
    """A router could not decide. Never reaches a caller: the next router, or the generalist, answers.

    Args:
        kind: Stable short name to count by: ``hook_raised``, ``unknown_specialist``, ``router_failed`` ...
        message: Description of the fault, for people.
    """

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class ScoringError(ListwrightError):
    """A stage failed to give one finite score per candidate."""


class AbandonedError(ListwrightError):
    """The caller has gone: the remaining work is not done."""


class BundleError(ListwrightError):
    """A bundle was refused.

    Args:
        file: The file at fault.
        reason: Fault and remedy, in one sentence.
    """

    def __init__(self, file: Path | str, reason: str) -> None:
        super().__init__(f"{file}: {reason}")
        self.file = Path(file)
        self.reason = reason


class BundleFormatError(BundleError):
    """The bundle's format is newer than this version reads."""


class DataError(ListwrightError):
    """Training data could not be read.

    Args:
        source: File (or archive member) that is at fault.
        expected: Description of what should have stood there, and of what did.
        line: 1-based line; None when the fault is the file's.
        column: 1-based character within the line, or the column's name in a table.
    """

    def __init__(
        self, source: Path | str, expected: str, *, line: int | None = None, column: int | str | None = None
    ) -> None:
        place = str(source)
        if line is not None:
            place += f", line {line}"
        if column is not None:
            place += f", column {column}"
        super().__init__(f"{place}: {expected}")
        self.source = str(source)
        self.line = line
        self.column = column


class RecipeError(ListwrightError):
    """A recipe or a combination of options cannot be run."""
