"""Deployment settings: folders today. The switches of the engine are in runtime_flags.py.

Each field names its variable as the alias; `saragossa flags` prints them. Beside Hugging Face's own
variables (HF_HOME, HF_TOKEN, HF_HUB_OFFLINE, HF_ENDPOINT), no other file reads the environment.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from saragossa.errors import UsageError


def _xdg(variable: str, fallback: str) -> Path:
    """A base folder of the XDG specification, which says that relative paths are ignored."""
    base = Path(os.environ.get(variable, ""))
    return (base if base.is_absolute() else Path.home() / fallback) / "saragossa"


def _absolute(path: Path) -> Path:
    path = path.expanduser()
    if not path.is_absolute():
        raise ValueError("an absolute path")
    return path


Folder = Annotated[Path, AfterValidator(_absolute)]


class Settings(BaseSettings):
    """What a deployment may set. Variables that are unset or empty leave the default."""

    model_config = SettingsConfigDict(case_sensitive=True, env_ignore_empty=True, frozen=True)

    cache_dir: Folder = Field(
        default_factory=lambda: _xdg("XDG_CACHE_HOME", ".cache"),
        validation_alias="SARAGOSSA_CACHE_DIR",
        description="folder of what saragossa makes and can make again: the converted demo model",
    )
    state_dir: Folder = Field(
        default_factory=lambda: _xdg("XDG_STATE_HOME", ".local/state"),
        validation_alias="SARAGOSSA_STATE_DIR",
        description="folder of the chat's history file",
    )


def load() -> Settings:
    """Read the environment. Raises UsageError naming the variable, what was found, what is accepted."""
    try:
        return Settings()
    except ValidationError as error:
        first = error.errors()[0]
        name, accepted = str(first["loc"][0]), first["msg"].removeprefix("Value error, ")
        raise UsageError(
            f"{name}: found {first['input']!r}, accepted is {accepted}", cure=f"set or unset {name}"
        ) from None


def variables() -> dict[str, str]:
    """Name and description of every variable."""
    return {str(f.validation_alias): f.description or "" for f in Settings.model_fields.values()}
