"""Rotary embedding parameters, from both forms of config.json, to inverse frequencies.

Formulas: plain RoPE (arXiv:2104.09864), linear position interpolation (arXiv:2306.15595), Llama 3.1's
wavelength bands, YaRN (arXiv:2309.00071), Gemma 4's proportional rope. Computed in float64 and rounded to
float32; transformers' ROPE_INIT_FUNCTIONS are the oracle (tests/golden/rope.json).
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping
from typing import Any

from saragossa.errors import ConfigError
from saragossa.models.config_base import LARGEST, SMALLEST, DecoderConfig
from saragossa.models.spec import RopeSpec

Parameters = Mapping[str, Any]
MOST_FACTOR = 1e6  # of a context's length
LEAST_ATTENTION, MOST_ATTENTION = 1e-3, 1e3  # what cos and sin are multiplied by
_COMMON = {"rope_type", "type", "rope_theta", "partial_rotary_factor", "original_max_position_embeddings"}
_KEYS: Mapping[str, set[str]] = {
    "default": set(),
    "linear": {"factor"},
    "llama3": {"factor", "low_freq_factor", "high_freq_factor"},
    "yarn": {"factor", "attention_factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim", "truncate"},
    "proportional": {"factor"},
}
_MROPE = ("mrope_section", "mrope_interleaved")


def rope_parameters(
    config: DecoderConfig, *, theta: float = 10_000.0, partial: float | None = None
) -> dict[str, Any]:
    """One flat set of parameters from `rope_parameters` (transformers 5) or `rope_scaling` and `rope_theta`.

    A key given in both forms must agree. `theta` is the base and `partial` the
    partial_rotary_factor where the config has none.
    """
    if config.rope_parameters and config.rope_scaling:
        merged = merge(config.rope_scaling, config.rope_parameters, "rope_scaling", "rope_parameters")
    else:
        merged = dict(config.rope_parameters or config.rope_scaling or {})
    outer = {
        "rope_theta": config.rope_theta,
        "partial_rotary_factor": config.partial_rotary_factor,
        "original_max_position_embeddings": config.original_max_position_embeddings,
    }
    merged = merge(outer, merged, "the top level", "rope_parameters")
    merged.setdefault("rope_theta", theta)
    if partial is not None:
        merged.setdefault("partial_rotary_factor", partial)
    return merged


def merge(left: Parameters, right: Parameters, left_name: str, right_name: str) -> dict[str, Any]:
    """Both sets as one, nulls dropped. Raises ConfigError for a key whose values differ."""
    result = {key: value for key, value in _named(left).items() if value is not None}
    for key, value in _named(right).items():
        if value is None:
            continue
        if key in result and result[key] != value:
            raise ConfigError(f"{key} is {result[key]!r} in {left_name} and {value!r} in {right_name}")
        result[key] = value
    return result


def _named(parameters: Parameters) -> dict[str, Any]:
    """`type`, the older spelling, as `rope_type`."""
    result = dict(parameters)
    old = result.pop("type", None)
    if old is not None and result.setdefault("rope_type", old) != old:
        raise ConfigError(f"rope type is {old!r} and rope_type is {result['rope_type']!r}")
    return result


def rope_spec(parameters: Parameters, *, head_dim: int, max_position: int, mrope: bool = False) -> RopeSpec:
    """Inverse frequencies [dims / 2] and attention factor.

    parameters: flat; head_dim in channels; max_position in tokens (the fallback of
    original_max_position_embeddings); mrope: channels may be shared out to the axes of a position, which
    are equal for text. Raises ConfigError for an unknown type, key or value.
    """
    params = {key: value for key, value in _named(parameters).items() if value is not None}
    sections = {key: params.pop(key) for key in _MROPE if key in params} if mrope else {}
    kind = params.get("rope_type", "default")
    if mrope and kind == "mrope":  # the older spelling
        kind = "default"
    if not isinstance(kind, str) or kind not in _KEYS:
        raise ConfigError(f"rope_type {kind!r:.50} is not supported; supported: {', '.join(_KEYS)}")
    for key in params:
        if key not in _COMMON | _KEYS[kind]:
            raise ConfigError(f"rope parameter {key} is not known for rope_type {kind!r}")
    theta = _number(params, "rope_theta", 10_000.0, low=1.0)
    share = _number(params, "partial_rotary_factor", 1.0)
    dims = int(head_dim * share)
    if share > 1 or dims <= 0 or dims % 2:
        raise ConfigError(
            f"partial_rotary_factor {share} rotates {dims} of {head_dim} channels; an even number up to "
            f"{head_dim} is wanted"
        )
    _check_mrope(sections, dims)
    if kind == "proportional":
        return _proportional(params, theta, share, head_dim)
    plain = [theta ** (-2.0 * i / dims) for i in range(dims // 2)]
    frequencies, factor = _SCALINGS[kind](params, plain, theta, max_position)
    return RopeSpec(dims, tuple(_float32(value) for value in frequencies), _float32(factor))


def _check_mrope(values: Parameters, dims: int) -> None:
    interleaved, value = (values.get(key) for key in reversed(_MROPE))
    if not isinstance(interleaved, bool | None):
        raise ConfigError(f"rope parameter mrope_interleaved is {interleaved!r:.50}; true or false is wanted")
    if value is not None:
        if not isinstance(value, list) or not all(type(size) is int and size >= 0 for size in value):
            raise ConfigError(f"rope parameter mrope_section is {value!r:.50}; a list of sizes is wanted")
        if sum(value) != dims // 2:
            raise ConfigError(
                f"rope parameter mrope_section {value!r:.50} sums to {sum(value)}; {dims} rotated channels "
                f"need {dims // 2}"
            )


def _proportional(params: Parameters, theta: float, share: float, head_dim: int) -> RopeSpec:
    """The frequencies of a whole head, of which only the first are used; those behind do not rotate."""
    rotated = int(share * head_dim // 2)
    factor = _factor(params, 1.0)
    turning = [theta ** (-2.0 * i / head_dim) / factor for i in range(rotated)]
    still = [0.0] * (head_dim // 2 - rotated)
    return RopeSpec(head_dim, tuple(_float32(value) for value in (*turning, *still)))


def _float32(value: float) -> float:
    result: float = struct.unpack("<f", struct.pack("<f", value))[0]
    return result


def _number(
    params: Parameters,
    key: str,
    default: float | None = None,
    *,
    low: float = SMALLEST,
    high: float = LARGEST,
) -> float:
    """A number from `low` to `high`, by default to what float32 holds."""
    value = params.get(key, default)
    if value is None:
        raise ConfigError(f"rope parameter {key} is missing for rope_type {params.get('rope_type')!r}")
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= value <= high:
        raise ConfigError(
            f"rope parameter {key} is {value!r:.50}; a number from {low:g} to {high:g} is wanted"
        )
    return float(value)


def _factor(params: Parameters, default: float | None = None) -> float:
    factor = _number(params, "factor", default, high=MOST_FACTOR)
    if factor < 1:
        raise ConfigError(f"rope parameter factor is {factor:g}; at least 1 is wanted")
    return factor


def _original(params: Parameters, max_position: int) -> float:
    value = _number(params, "original_max_position_embeddings", max_position)
    if value != int(value):
        raise ConfigError(f"rope parameter original_max_position_embeddings is {value}; an integer is wanted")
    return value


Scaled = tuple[list[float], float]


def _default(params: Parameters, plain: list[float], theta: float, max_position: int) -> Scaled:
    return plain, 1.0


def _linear(params: Parameters, plain: list[float], theta: float, max_position: int) -> Scaled:
    factor = _factor(params)
    return [value / factor for value in plain], 1.0


def _llama3(params: Parameters, plain: list[float], theta: float, max_position: int) -> Scaled:
    """Long wavelengths are divided by the factor, short ones kept, those between interpolated."""
    factor, original = _factor(params), _original(params, max_position)
    low, high = _number(params, "low_freq_factor"), _number(params, "high_freq_factor")
    if high <= low:
        raise ConfigError(f"rope parameter high_freq_factor {high:g} must be above low_freq_factor {low:g}")

    def scale(value: float) -> float:
        wavelength = 2 * math.pi / value
        if wavelength < original / high:
            return value
        if wavelength > original / low:
            return value / factor
        smooth = (original / wavelength - low) / (high - low)
        return (1 - smooth) * value / factor + smooth * value

    return [scale(value) for value in plain], 1.0


def _yarn(params: Parameters, plain: list[float], theta: float, max_position: int) -> Scaled:
    """Fast channels are kept, slow ones interpolated, a ramp between; cos and sin grow by the factor."""
    factor, original = _factor(params), _original(params, max_position)
    fast, slow = _number(params, "beta_fast", 32.0), _number(params, "beta_slow", 1.0)
    if theta <= 1:
        raise ConfigError(f"rope_theta is {theta:g}; yarn needs one above 1")
    truncate = params.get("truncate", True)
    if not isinstance(truncate, bool):
        raise ConfigError(f"rope parameter truncate is {truncate!r:.50}; true or false is wanted")
    dims = 2 * len(plain)

    def channel(rotations: float) -> float:
        return dims * math.log(original / (rotations * 2 * math.pi)) / (2 * math.log(theta))

    low, high = channel(fast), channel(slow)
    if truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, dims - 1)
    if low == high:
        high += 0.001  # no division by zero

    def scale(i: int, value: float) -> float:
        ramp = min(max((i - low) / (high - low), 0.0), 1.0)
        return value / factor * ramp + value * (1 - ramp)

    return [scale(i, value) for i, value in enumerate(plain)], _yarn_attention(params, factor)


def _yarn_attention(params: Parameters, factor: float) -> float:
    if "attention_factor" in params:
        return _number(params, "attention_factor", low=LEAST_ATTENTION, high=MOST_ATTENTION)

    def mscale(weight: float) -> float:
        return 1.0 if factor <= 1 else 0.1 * weight * math.log(factor) + 1.0

    top, bottom = params.get("mscale"), params.get("mscale_all_dim")
    if top and bottom:
        first, second = (
            mscale(_number(params, key, low=LEAST_ATTENTION, high=MOST_ATTENTION))
            for key in ("mscale", "mscale_all_dim")
        )
        return first / second
    return mscale(1.0)


_SCALINGS: Mapping[str, Callable[[Parameters, list[float], float, int], Scaled]] = {
    "default": _default,
    "linear": _linear,
    "llama3": _llama3,
    "yarn": _yarn,
}
