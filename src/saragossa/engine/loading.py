"""From a model folder to a model on a device."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from saragossa import _core, runtime_flags
from saragossa.engine.memory import BLOCK_TOKENS, CACHE_SEQUENCES
from saragossa.errors import ConfigError, ParameterError
from saragossa.models.spec import ModelSpec
from saragossa.runtime_flags import Value
from saragossa.weights.bind import BoundTensor, bind
from saragossa.weights.checkpoint import load_spec
from saragossa.weights.safetensors import SafetensorsIndex

KV_DTYPES = ("bf16", "u8", "f32")


@dataclass(frozen=True, slots=True)
class Loaded:
    """A model on its device. context in tokens; chunk: prompt tokens a submission."""

    model: _core.Model
    device: _core.Device
    spec: ModelSpec
    context: int
    chunk: int


# The exact path: float32 activations and a float32 cache; no tensor operations, which round to half.
EXACT: Mapping[str, Value] = {"activations": "f32", "kv_dtype": "f32", "metal_tensor_ops": False}


def open_device(
    name: str,
    *,
    threads: int | None = None,
    exact: bool | None = None,
    kv: str | None = None,
    switches: Mapping[str, Value] | None = None,
) -> tuple[_core.Device, dict[str, object]]:
    """A device with the switches of the environment, and all the switches' values.

    exact: with those of EXACT. kv: how keys and values are stored, bf16, u8 or f32; None: the switch's.
    switches: by field name; they win over all of these.
    """
    values = _values(name, threads=threads, exact=exact, kv=kv, switches=switches)
    return _open(name, values), dict(values)


def _values(
    name: str,
    *,
    threads: int | None,
    exact: bool | None,
    kv: str | None,
    switches: Mapping[str, Value] | None,
) -> dict[str, Value]:
    if exact not in (None, True, False):
        raise ParameterError("exact", f"exact: found {exact!r}, accepted is True or False")
    if kv not in (None, *KV_DTYPES):
        raise ParameterError("kv", f"kv: found {kv!r}, accepted is {', '.join(KV_DTYPES)}")
    if exact and kv not in (None, "f32"):
        raise ParameterError(
            "kv", f"kv: found {kv!r}, accepted with exact is f32", cure="leave one of them out"
        )
    if kv is not None:
        switches = {"kv_dtype": kv, **(switches or {})}
    if not isinstance(name, str):
        raise ParameterError("device", f"device: found {name!r}, accepted is auto, cpu or metal")
    return switch_values(threads=threads, exact=exact, switches=switches)


def _open(name: str, values: Mapping[str, Value]) -> _core.Device:
    return _core.Device(
        name,
        fused=bool(values["fused"]),
        activations=str(values["activations"]),
        isa=str(values["isa"]),
        threads=int(values["threads"]),
        spin_us=int(values["spin_us"]),
        cpu_fetch_ahead=bool(values["cpu_fetch_ahead"]),
        chunked_delta=bool(values["chunked_delta"]),
        run_ahead=bool(values["run_ahead"]),
        metal_resident=bool(values["metal_resident"]),
        metal_matmul=bool(values["metal_matmul"]),
        metal_tensor_ops=bool(values["metal_tensor_ops"]),
        metal_statistics=bool(values["metal_statistics"]),
        metal_split_matmul=bool(values["metal_split_matmul"]),
        metal_sorted_experts=bool(values["metal_sorted_experts"]),
        metal_simdgroup_attention=bool(values["metal_simdgroup_attention"]),
        metal_command_macs=int(values["metal_command_macs"]),
        kernel_cache=_kernel_cache(name),
    )


def switch_values(
    *,
    threads: int | None = None,
    exact: bool | None = None,
    switches: Mapping[str, Value] | None = None,
) -> dict[str, Value]:
    """All switches by field name, as `open_device` takes them."""
    overrides = {**(EXACT if exact else {}), **(switches or {})}
    if threads is not None:
        overrides["threads"] = threads
    return runtime_flags.switches(**overrides)


def _kernel_cache(device: str) -> str:
    """The folder for the machine code of Metal kernels; empty where no Metal device is meant."""
    if device not in ("auto", "metal") or not _core.metal_available():
        return ""
    from saragossa import settings  # only here: it brings pydantic-settings

    return str(settings.load().cache_dir / "kernels")


def load(
    folder: Path,
    *,
    device: str = "auto",
    threads: int | None = None,
    exact: bool | None = None,
    kv: str | None = None,
    context: int | None = None,
    switches: Mapping[str, Value] | None = None,
    mtp: bool = False,
    block_drafter: Path | None = None,
    on: _core.Device | None = None,
    before: Callable[[ModelSpec], None] | None = None,
) -> Loaded:
    """Check everything that can be checked without reading weights, then bind them to a device.

    switches: by field name, before those of the environment and of `exact`.
    mtp: with the head for multi-token prediction. block_drafter: folder of a DFlash drafter for this model.
    on: a device that is open already. before: further checks, called with the spec before memory is spent.
    """
    values = _values(device, threads=threads, exact=exact, kv=kv, switches=switches)
    on = _open(device, values) if on is None else on
    spec = load_spec(folder, mtp=mtp)
    beside: list[BoundTensor] = []
    if block_drafter is not None:
        spec, beside = _with_block_drafter(spec, block_drafter)
    limit = spec.decoder.max_context
    if context is not None and not (type(context) is int and 1 <= context <= limit):
        raise ParameterError(
            "context", f"context: found {context!r}, accepted is 1 to {limit}, the model's own"
        )
    context = context or limit
    tensors = bind(spec, SafetensorsIndex.open(folder)) + beside
    if before is not None:
        before(spec)
    blocks = -(-context // BLOCK_TOKENS) * CACHE_SEQUENCES
    model = _core.Model(
        on, spec.decoder, tensors, blocks=blocks, block_tokens=BLOCK_TOKENS, kv_dtype=str(values["kv_dtype"])
    )
    return Loaded(model, on, spec, context, int(str(values["prefill_chunk"])))


def _with_block_drafter(spec: ModelSpec, folder: Path) -> tuple[ModelSpec, list[BoundTensor]]:
    from saragossa.models import read_config_json
    from saragossa.models.block_drafter import attach

    index = SafetensorsIndex.open(folder)
    try:
        spec, own = attach(spec, read_config_json(folder), index)
    except ConfigError as exc:
        raise ConfigError(f"{folder / 'config.json'}: {exc.message}", cure=exc.cure) from exc
    return spec, bind(own, index)


def load_draft(
    folder: Path, target: Loaded, *, device: str, threads: int | None, exact: bool | None, kv: str | None
) -> Loaded:
    """A draft model beside `target`, on its device and with its context, as far as it goes."""
    context = min(target.context, load_spec(folder).decoder.max_context)
    return load(folder, device=device, threads=threads, exact=exact, kv=kv, context=context, on=target.device)
