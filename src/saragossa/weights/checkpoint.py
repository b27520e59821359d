"""A checkpoint's folder as a whole: config.json and the headers of its weights, no weight read."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from saragossa.errors import ConfigError, SaragossaError
from saragossa.models import read_architecture, read_config_json
from saragossa.models.parameters import Parameters, parameters
from saragossa.weights.safetensors import SafetensorsIndex

if TYPE_CHECKING:
    from saragossa.models.spec import ModelSpec


@dataclass(frozen=True, slots=True)
class Description:
    """What `saragossa list` tells of a folder; `problem` says why it is not supported."""

    model_type: str
    quantization: str
    nbytes: int
    problem: str | None
    parameters: Parameters | None = None  # None where it is not supported

    @property
    def supported(self) -> bool:
        return self.problem is None


def load_spec(
    model_dir: str | Path, index: SafetensorsIndex | None = None, *, mtp: bool = False
) -> ModelSpec:
    """Read a model folder's config.json and the headers of its tensors.

    index: the folder's, when it is open already; mtp: with the multi-token prediction head. Raises ModelError
    (no model folder, unsupported architecture), ConfigError (config.json) and WeightsError (safetensors
    headers, a head that is absent).
    """
    architecture = read_architecture(Path(model_dir))
    return architecture.spec(SafetensorsIndex.open(model_dir) if index is None else index, mtp=mtp)


def describe(model_dir: str | Path) -> Description:
    """Architecture, quantisation and size of a folder, and whether it loads. Never raises."""
    folder = Path(model_dir)
    model_type, quantization, problem, count = "unknown", "", None, None
    try:
        config = read_config_json(folder)
        model_type = str(config.get("model_type", "unknown"))
        quantization = _quantization_name(config)
        count = parameters(load_spec(folder))
    except SaragossaError as exc:
        problem = exc.message
    except Exception as exc:  # a listing goes on, whatever one folder holds
        problem = f"{type(exc).__name__}: {exc}"
    return Description(model_type, quantization, _folder_bytes(folder), problem, count)


def _quantization_name(config: dict[str, Any]) -> str:
    from saragossa.models.config_base import config_block
    from saragossa.weights.quantization import QuantizationConfig

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
