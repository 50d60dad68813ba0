"""Files of propensities, as ``listwright propensity`` writes them and ``listwright fit --propensities`` reads them."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from listwright.ranking.errors import RecipeError
from listwright.ranking.plain_file import from_json
from listwright.training.recipe.data import Propensity

Number = Annotated[float, Field(gt=0.0, le=1e6)]


class PlacePropensity(BaseModel):
    """Of one place.

    Args:
        position: from 1.
        propensity: how likely it is looked at, relative to the first.
        low, high: 95 % interval.
    """

    model_config = ConfigDict(frozen=True)

    position: Annotated[int, Field(ge=1)]
    propensity: Number
    low: float | None = None
    high: float | None = None


class PropensityFile(BaseModel):
    """The file. Fields that it has beside these are left alone: they say where it comes from.

    Args:
        format: version; a change that an older reader would misread raises it.
        positions: in order, from 1.
    """

    model_config = ConfigDict(frozen=True, extra="allow")

    format: Literal[1] = 1
    positions: Annotated[tuple[PlacePropensity, ...], Field(min_length=1)]


def propensity_from(options: argparse.Namespace) -> Propensity | None:
    """What ``--propensities``, ``--position`` and ``--clip`` of a command line say; None where they say nothing.

    Raises:
        RecipeError: if the file cannot be used, or none is named.
    """
    if options.propensities is None:
        for option in ("position", "clip"):
            if (value := getattr(options, option)) is not None:
                raise RecipeError(f"--{option} {value}: says how --propensities FILE is used; name the file")
        return None
    clip = Propensity.model_fields["clip"].default if options.clip is None else options.clip
    return read_propensity(options.propensities, column=options.position or "position", clip=clip)


def read_propensity(path: Path, *, column: str, clip: float) -> Propensity:
    """The propensities of a file.

    Args:
        path: of the file.
        column: of the data, with the shown place.
        clip: smallest propensity that counts.

    Raises:
        RecipeError: if it cannot be read, its places are not 1, 2 and so on, or the clip is none; names the remedy.
    """
    made = "make it with listwright propensity ROWS --out FILE"
    try:
        found = PropensityFile.model_validate(from_json(path.read_bytes()))
    except OSError as error:
        raise RecipeError(f"--propensities {path} cannot be read: {error.strerror or error}; {made}") from error
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise RecipeError(f"--propensities {path}: {place}: {first['msg']} (got {first['input']!r}); {made}") from error
    except ValueError as error:
        raise RecipeError(f"--propensities {path}: no JSON: {error}; {made}") from error
    places = [one.position for one in found.positions]
    if places != list(range(1, len(places) + 1)):
        raise RecipeError(f"--propensities {path}: expected positions 1 to {len(places)} in order, found {places}")
    if not 0.0 < clip <= 1.0:
        raise RecipeError(f"--clip {clip:g}: expected a propensity above 0, at most 1")
    return Propensity(column=column, values=tuple(one.propensity for one in found.positions), clip=clip)
