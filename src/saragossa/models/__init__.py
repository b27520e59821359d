"""Model architectures: one file per model_type, from config.json to a typed `ModelSpec`.

Importing the package is cheap; a model file and its config reader are imported when a model is loaded.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from saragossa.errors import ConfigError, ModelError
from saragossa.files import read_object

if TYPE_CHECKING:
    from saragossa.models.index import Index
    from saragossa.models.spec import ModelSpec

_SHARED = frozenset({  # modules that are no architecture
    "block_drafter", "config_base", "decoder", "experts", "gemma4_layers", "hybrid", "hybrid_model", "index",
    "moe", "mtp", "parameters", "rope", "spec", "tensors", "wrapped",
})  # fmt: skip
MAX_CONFIG = 8 << 20
ADAPTER = "a LoRA adapter without its model; adapters are not supported"
ADAPTER_CURE = "merge it into its base model first (peft: merge_and_unload, mlx_lm.fuse) and use the result"


@dataclass(frozen=True, slots=True)
class Architecture:
    """A supported model_type with the config.json that names it."""

    model_type: str
    config: Mapping[str, Any]
    path: Path  # of config.json, for errors

    def spec(self, index: Index, *, mtp: bool = False) -> ModelSpec:
        """The spec of a checkpoint with these tensors; mtp: with its multi-token prediction head.

        Raises ConfigError naming the file, WeightsError when the head is asked for and absent.
        """
        module = importlib.import_module(f"{__name__}.{self.model_type}")
        if mtp and not getattr(module, "MTP", False):
            raise ModelError(f"{self.path}: a {self.model_type} model has no MTP head, which was asked for")
        try:
            spec: ModelSpec = module.build(self.config, index, **({"mtp": True} if mtp else {}))
        except ConfigError as exc:
            raise ConfigError(f"{self.path}: {exc.message}", cure=exc.cure) from exc
        return spec


def supported() -> list[str]:
    """The model types that load, sorted."""
    return sorted(module.name for module in pkgutil.iter_modules(__path__) if module.name not in _SHARED)


def read_architecture(folder: Path) -> Architecture:
    """What a model folder's config.json says. Raises ModelError and ConfigError."""
    path = folder / "config.json"
    config = read_config_json(folder)
    model_type = config.get("model_type")
    if not isinstance(model_type, str):
        raise ConfigError(f"{path}: model_type is missing")
    if model_type not in supported():
        raise ModelError(
            f"{folder}: architecture {model_type!r:.80} is not supported",
            cure=f"supported: {', '.join(supported())}",
        )
    return Architecture(model_type, config, path)


def read_config_json(folder: Path) -> dict[str, Any]:
    """config.json, or an error that says what the path is instead of a model folder."""
    config = folder / "config.json"
    if is_adapter(path.name for path in folder.glob("*")):
        raise ModelError(f"{folder}: {ADAPTER}", cure=ADAPTER_CURE)
    if config.is_file():
        return read_object(config, limit=MAX_CONFIG, error=ConfigError)
    if folder.is_file():
        if _is_gguf(folder):
            raise ModelError(
                f"{folder}: a GGUF file, a model folder is wanted",
                cure=f"import it: `saragossa convert {folder} OUT`",
            )
        raise ModelError(f"{folder}: a file, a model folder is wanted", cure="give the folder it lies in")
    if not folder.is_dir():
        raise ModelError(f"{folder}: no such folder")
    if not any(folder.iterdir()):
        raise ModelError(f"{folder}: an empty folder, no model", cure="fetch one with `saragossa pull`")
    if gguf := next(iter(sorted(folder.glob("*.gguf"))), None):
        raise ModelError(
            f"{folder}: no config.json, but a GGUF file", cure=f"import it: `saragossa convert {gguf} OUT`"
        )
    raise ModelError(f"{folder}: no config.json, so it is no model folder")


def is_adapter(names: Iterable[str]) -> bool:
    """Whether files of these names are a LoRA adapter, with no model's weights beside it."""
    found = set(names)
    weights = [name for name in found if name.endswith(".safetensors") and "adapter" not in name]
    return "adapter_config.json" in found and not weights


def _is_gguf(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(4) == b"GGUF"
    except OSError:
        return False
