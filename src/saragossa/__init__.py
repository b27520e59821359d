"""saragossa: a local inference engine for Apple Silicon, with a CPU device that runs anywhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from saragossa.engine.options import Chunk, Completion, GenerationOptions
    from saragossa.errors import SaragossaError
    from saragossa.llm import LLM

__all__ = ["LLM", "Chunk", "Completion", "GenerationOptions", "SaragossaError", "__version__"]

_HOMES = {
    "LLM": "saragossa.llm",
    "Chunk": "saragossa.engine.options",
    "Completion": "saragossa.engine.options",
    "GenerationOptions": "saragossa.engine.options",
    "SaragossaError": "saragossa.errors",
}


def __getattr__(name: str) -> object:
    """Load on first use: importing the package stays quick."""
    from importlib import import_module

    if name == "__version__":
        from importlib.metadata import version

        return version("saragossa")
    if name in _HOMES:
        value = getattr(import_module(_HOMES[name]), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'saragossa' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
