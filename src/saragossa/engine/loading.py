"""From a model folder to a model on a device."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from saragossa import _core, runtime_flags
from saragossa.errors import ParameterError
from saragossa.models.spec import ModelSpec
from saragossa.runtime_flags import Value
from saragossa.weights.bind import bind
from saragossa.weights.checkpoint import load_spec
from saragossa.weights.safetensors import SafetensorsIndex

BLOCK_TOKENS = 256
# Sequences of full context that fit the cache; its pages are committed only when they are written.
CACHE_SEQUENCES = 8
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
    values = switch_values(threads=threads, exact=exact, switches=switches)
    device = _core.Device(
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
    return device, dict(values)


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
) -> Loaded:
    """Check everything that can be checked without reading weights, then bind them to a device.

    switches: by field name, before those of the environment and of `exact`.
    """
    on, values = open_device(device, threads=threads, exact=exact, kv=kv, switches=switches)
    spec = load_spec(folder)
    limit = spec.decoder.max_context
    if context is not None and not (type(context) is int and 1 <= context <= limit):
        raise ParameterError(
            "context", f"context: found {context!r}, accepted is 1 to {limit}, the model's own"
        )
    context = context or limit
    tensors = bind(spec, SafetensorsIndex.open(folder))
    blocks = -(-context // BLOCK_TOKENS) * CACHE_SEQUENCES
    model = _core.Model(
        on, spec.decoder, tensors, blocks=blocks, block_tokens=BLOCK_TOKENS, kv_dtype=str(values["kv_dtype"])
    )
    return Loaded(model, on, spec, context, int(str(values["prefill_chunk"])))
