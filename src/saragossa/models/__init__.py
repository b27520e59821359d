"""Model architectures: one file per model_type, from config.json to a typed `ModelSpec`.

Importing the package is cheap; a model file and its config reader are imported when a model is loaded.
"""

from __future__ import annotations

import importlib
import pkgutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from saragossa.errors import ConfigError, ModelError, SaragossaError

if TYPE_CHECKING:
    from saragossa.models.spec import ModelSpec
    from saragossa.weights.safetensors import SafetensorsIndex

_SHARED = frozenset({"config_base", "decoder", "rope", "spec"})  # modules that are no architecture
MAX_CONFIG = 8 << 20


@dataclass(frozen=True, slots=True)
class ModelDescription:
    """What `saragossa list` tells of a folder; `problem` says why it is not supported."""

    model_type: str
    quantization: str
    nbytes: int
    problem: str | None

    @property
    def supported(self) -> bool:
        return self.problem is None


def supported() -> list[str]:
    """The model types that load, sorted."""
    return sorted(module.name for module in pkgutil.iter_modules(__path__) if module.name not in _SHARED)


def load_spec(model_dir: str | Path, index: SafetensorsIndex | None = None) -> ModelSpec:
    """Read a model folder's config.json and the names of its tensors.

    index: the folder's, when it is open already. Raises ModelError (no model folder, unsupported
    architecture), ConfigError (config.json) and WeightsError (safetensors headers).
    """
    from saragossa.weights.safetensors import SafetensorsIndex

    folder = Path(model_dir)
    config = _read_config_json(folder)
    model_type = config.get("model_type")
    if not isinstance(model_type, str):
        raise ConfigError(f"{folder / 'config.json'}: model_type is missing")
    if model_type not in supported():
        raise ModelError(
            f"{folder}: architecture {model_type!r:.80} is not supported",
            cure=f"supported: {', '.join(supported())}",
        )
    module = importlib.import_module(f"{__name__}.{model_type}")
    names = SafetensorsIndex.open(folder) if index is None else index
    try:
        spec: ModelSpec = module.build(config, names)
    except ConfigError as exc:
        raise ConfigError(f"{folder / 'config.json'}: {exc.message}", cure=exc.cure) from exc
    return spec


def describe(model_dir: str | Path) -> ModelDescription:
    """Architecture, quantisation and size of a folder, and whether it loads. Never raises."""
    folder = Path(model_dir)
    model_type, quantization, problem = "unknown", "", None
    try:
        config = _read_config_json(folder)
        model_type = str(config.get("model_type", "unknown"))
        quantization = _quantization_name(config)
        load_spec(folder)
    except SaragossaError as exc:
        problem = exc.message
    except Exception as exc:  # a listing goes on, whatever one folder holds
        problem = f"{type(exc).__name__}: {exc}"
    return ModelDescription(model_type, quantization, _folder_bytes(folder), problem)


def _quantization_name(config: dict[str, Any]) -> str:
    from saragossa.weights.quantization import QuantizationConfig, config_block

    text = config.get("text_config")
    configs = [config, text] if isinstance(text, dict) else [config]
    try:
        parsed = QuantizationConfig.parse(config_block(*configs))
    except ConfigError:
        block = config.get("quantization_config")
        method = block.get("quant_method", "unknown") if isinstance(block, dict) else "unknown"
        return str(method)
    if parsed is not None:
        return str(parsed)
    dtype = config.get("dtype") or config.get("torch_dtype") or (text or {}).get("dtype")
    return dtype if isinstance(dtype, str) else ""


def _folder_bytes(folder: Path) -> int:
    try:
        return sum(path.stat().st_size for path in folder.iterdir() if path.is_file())
    except OSError:
        return 0


def _read_config_json(folder: Path) -> dict[str, Any]:
    """config.json, or an error that says what the path is instead of a model folder."""
    from saragossa.weights.json_file import read_json_object

    config = folder / "config.json"
    if config.is_file():
        return read_json_object(config, max_bytes=MAX_CONFIG, error=ConfigError)
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


def _is_gguf(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(4) == b"GGUF"
    except OSError:
        return False
