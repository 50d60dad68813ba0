"""What an action is worth, which actions show that a candidate was seen, and what is summed; read from TOML."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from listwright.ranking.errors import RecipeError
from listwright.ranking.plain_file import from_toml
from listwright.ranking.served.events import MAX_NAME
from listwright.training.data.letor.fast import MAX_LABEL

ActionName = Annotated[str, Field(min_length=1, max_length=MAX_NAME)]
ActionLabel = Annotated[int, Field(ge=0, le=MAX_LABEL)]
ColumnName = Annotated[str, Field(max_length=MAX_NAME, pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
FieldPath = Annotated[str, Field(max_length=MAX_NAME, pattern=r"^[^.]+(\.[^.]+)*$")]


class Sum(BaseModel):
    """A column of the judged rows: the sum of a number that events of one action carry.

    Args:
        action: whose events are summed; one that counts.
        field: of an event, with dots between the levels, such as ``event_attributes.object.price``.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    action: ActionName
    field: FieldPath


class Labels(BaseModel):
    """What events say of a candidate.

    Args:
        labels: by action, a whole number from 0; the highest of a candidate's actions is its relevance label.
        seen: actions, such as ``impression``, that only show that a candidate was seen. Empty: all shown ones were.
        sums: further columns, by name.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    labels: Annotated[dict[ActionName, ActionLabel], Field(min_length=1)]
    seen: Annotated[list[ActionName], Field(max_length=100)] = []
    sums: Annotated[dict[ColumnName, Sum], Field(max_length=100)] = {}

    @model_validator(mode="after")
    def _are_apart(self) -> Labels:
        both = [name for name in self.seen if name in self.labels]
        if both:
            raise ValueError(
                f"{both[0]!r} has a label, so it shows anyway that a candidate was seen: leave it out of seen"
            )
        unknown = [(name, one.action) for name, one in self.sums.items() if one.action not in self.actions]
        if unknown:
            name, action = unknown[0]
            raise ValueError(f"sums.{name}: the action {action!r} is neither in labels nor in seen: give it a label")
        return self

    @property
    def actions(self) -> tuple[str, ...]:
        """All that are counted."""
        return (*self.labels, *self.seen)


def read_labels(path: Path) -> Labels:
    """The labels of a TOML file.

    Raises:
        RecipeError: if it cannot be read, or says something else; names the fault.
    """
    example = "write [labels] and below it lines such as click = 1"
    try:
        values = from_toml(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise RecipeError(f"--labels {path}: cannot be read ({error.strerror or error}); {example}") from error
    except ValueError as error:
        raise RecipeError(f"--labels {path}: not TOML ({error}); {example}") from error
    try:
        return Labels.model_validate(values)
    except ValidationError as error:
        fault = error.errors()[0]
        place = ".".join(map(str, fault["loc"]))
        said = str(fault["msg"]).removeprefix("Value error, ")
        raise RecipeError(f"--labels {path}: {place + ': ' if place else ''}{said}; {example}") from error
