"""The served bundles: one immutable value, replaced whole in one assignment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from types import MappingProxyType

from listwright.ranking.bundle import Bundle
from listwright.ranking.features import FeatureSchema
from listwright.service.errors import NotReadyError, UnknownModelError

DEFAULT = "default"
"""The name, of a bundle or an alias, that answers a request without ``model`` where several bundles are served."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """A bundle, or a pointer to one, that was refused.

    Args:
        model: Name in the models folder.
        version: Content of ``CURRENT``; empty if that itself is wrong.
        reason: Reason of the refusal, without the folder's path.
        at: Time of the refusal, in UTC.
    """

    model: str
    version: str
    reason: str
    at: datetime


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Models:
    """The models that are served at one moment.

    A request takes this value once, at its start, and uses it to its end: whatever is swapped meanwhile, its answer is
    of one version.

    Args:
        current: Bundle of each name.
        previous: Bundle that each name served before, ready for a rollback.
        aliases: Name that each alias stands for.
        refused: Refusal of what should be served instead, by name.
        default: Name of the bundle that answers where the request names none; None where it must name one.
        default_bundle: Bundle of that name; None where there is none.
    """

    current: Mapping[str, Bundle]
    previous: Mapping[str, Bundle] = field(default_factory=dict)
    aliases: Mapping[str, str] = field(default_factory=dict)
    refused: Mapping[str, Refusal] = field(default_factory=dict)
    default: str | None = field(init=False)
    default_bundle: Bundle | None = field(init=False)

    def __post_init__(self) -> None:
        for name in ("current", "previous", "aliases", "refused"):
            object.__setattr__(self, name, MappingProxyType(dict(sorted(getattr(self, name).items()))))
        name = self.aliases.get(DEFAULT, DEFAULT)
        default = next(iter(self.current)) if len(self.current) == 1 else name if name in self.current else None
        object.__setattr__(self, "default", default)
        object.__setattr__(self, "default_bundle", None if default is None else self.current[default])

    @property
    def schemas(self) -> list[FeatureSchema]:
        """Schemas of all bundles that a request may name."""
        return [bundle.reranker.schema for bundle in (*self.current.values(), *self.previous.values())]

    def name_of(self, model: str) -> str:
        """Resolve a name or alias to a name, served or not."""
        return self.aliases.get(model, model)

    def versions(self, model: str) -> list[Bundle]:
        """Return the bundles of a name or alias, the current one first; empty if it is not served."""
        name = self.name_of(model)
        return [bundle[name] for bundle in (self.current, self.previous) if name in bundle]

    def choose(self, model: str | None, version: str | None) -> Bundle:
        """Return the bundle that a request asks for.

        Args:
            model: Name or alias; None for the default.
            version: Current version, or the one kept for a rollback; None for the current one.

        Raises:
            UnknownModelError: if it is not served, or several are and the request names none.
        """
        name = self.default if model is None else self.name_of(model)
        if name is None:
            names = " or ".join(map(repr, self.current))
            raise UnknownModelError(f"several models are served and none is the default: name {names}")
        if name not in self.current:
            raise UnknownModelError(f"model {model!r} is not served here, {_listed(self.current)}")
        offered = self.versions(name)
        for bundle in offered:
            if version in (None, bundle.manifest.version):
                return bundle
        versions = [bundle.manifest.version for bundle in offered]
        raise UnknownModelError(f"version {version!r} is not served here, {_listed(versions)}")


@dataclass(slots=True)
class Current:
    """Holder of the models that a process serves now.

    Args:
        models: Served models, replaced whole, in one assignment; None until the first bundles are loaded.
    """

    models: Models | None = None

    def require(self) -> Models:
        """Return the models.

        Raises:
            NotReadyError: if there are none yet.
        """
        if self.models is None:
            raise NotReadyError("no bundle is loaded yet: ask /readyz until it says 200")
        return self.models


def models_of(bundle: Bundle, alias: str | None = None) -> Models:
    """Return models of one bundle, under its own name and perhaps another."""
    name = bundle.manifest.name
    return Models({name: bundle}, aliases={} if alias is None or alias == name else {alias: name})


def _listed(names: Mapping[str, Bundle] | list[str]) -> str:
    return f"{', '.join(map(repr, names))} {'is' if len(names) == 1 else 'are'}"
