"""The quantiser against stored results of mlx, and the packing against its definition."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from saragossa.errors import UsageError
from saragossa.weights.convert.floats import from_float32, to_float32
from saragossa.weights.convert.microscaling import BITS as MX_BITS
from saragossa.weights.convert.microscaling import quantize_mx
from saragossa.weights.convert.quantize import check_format, pack, quantize
from saragossa.weights.quantization import BITS, GROUP_SIZES, Format

GOLDEN = Path(__file__).parents[2] / "golden" / "quantize.npz"


@pytest.mark.parametrize("dtype", ["F32", "F16", "BF16"])
@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("group_size", GROUP_SIZES)
def test_bits_equal_mlx(dtype: str, bits: int, group_size: int) -> None:
    with np.load(GOLDEN) as golden:
        source = golden[dtype]
        packed, scales, biases = (
            golden[f"{dtype}/{bits}/{group_size}/{part}"] for part in ("packed", "scales", "biases")
        )
    q = quantize(to_float32(source, dtype), bits, group_size)
    assert np.array_equal(pack(q.codes, bits), packed)
    for ours, theirs in ((q.scales, scales), (q.biases, biases)):
        stored = from_float32(ours, dtype)
        assert stored.dtype == theirs.dtype
        assert stored.tobytes() == theirs.tobytes()


@pytest.mark.parametrize("dtype", ["F32", "F16", "BF16"])
@pytest.mark.parametrize("mode", MX_BITS)
def test_mx_equals_mlx(dtype: str, mode: str) -> None:
    with np.load(GOLDEN) as golden:
        source, packed, scales = (
            golden[key] for key in (dtype, f"{dtype}/{mode}/packed", f"{dtype}/{mode}/scales")
        )
    q = quantize_mx(to_float32(source, dtype), mode, dtype)
    assert np.array_equal(q.scales, scales)
    assert np.array_equal(pack(q.codes, MX_BITS[mode]), packed)


def test_goldens_have_the_corners() -> None:
    """Else equality would prove little: scales of both signs, zero groups, biases off zero."""
    with np.load(GOLDEN) as golden:
        scales, biases = golden["F32/4/64/scales"], golden["F32/4/64/biases"]
    assert 0.2 < (scales < 0).mean() < 0.9
    assert (biases == 0).any()
    assert (biases > 0).any()
    assert (biases < 0).any()


@pytest.mark.parametrize("bits", BITS)
def test_packing_is_one_bit_stream(bits: int) -> None:
    codes = np.random.default_rng(bits).integers(0, 1 << bits, (3, 64), dtype=np.uint8)
    words = pack(codes, bits)
    assert words.shape == (3, 64 * bits // 32)
    assert words.dtype == np.uint32
    stream = np.unpackbits(words.astype("<u4").view(np.uint8), axis=1, bitorder="little")
    again = (stream.reshape(3, 64, bits) << np.arange(bits, dtype=np.uint8)).sum(axis=2)
    assert np.array_equal(again, codes)


def test_round_trip_stays_within_half_a_step() -> None:
    weights = np.random.default_rng(1).standard_normal((16, 256)).astype(np.float32)
    for bits in BITS:
        q = quantize(weights, bits, 64)
        values = q.codes.reshape(16, -1, 64) * q.scales[..., None] + q.biases[..., None]
        error = np.abs(values - weights.reshape(values.shape))
        inside = (q.codes > 0) & (q.codes < (1 << bits) - 1)  # the far end of the range may be clipped
        step = np.abs(q.scales)[..., None] * 0.5001
        assert (error <= step)[inside.reshape(error.shape)].all()


@pytest.mark.parametrize(
    ("bits", "group_size", "mode", "message"),
    [
        (7, 64, "affine", "bits 7 is not supported (use 2, 3, 4, 5, 6 or 8)"),
        (0, 64, "affine", "bits 0 is not supported"),
        (4, 16, "affine", "group size 16 is not supported (use 32, 64 or 128)"),
        (None, 64, "affine", "a group size has no effect without bits"),
        (8, None, "mxfp4", "bits 8 is not supported with mode mxfp4 (use 4)"),
        (None, 64, "mxfp8", "group size 64 is not supported with mode mxfp8 (use 32)"),
        (4, 16, "nvfp4", "mode nvfp4 is not supported (use affine, mxfp4, mxfp8)"),
    ],
)
def test_other_formats_are_refused(bits: int | None, group_size: int | None, mode: str, message: str) -> None:
    with pytest.raises(UsageError) as error:
        check_format(bits, group_size, mode)
    assert message in str(error.value)


def test_what_options_mean() -> None:
    assert check_format(None, None, "affine") is None
    assert check_format(3, None, "affine") == Format(3, 64)
    assert check_format(None, None, "mxfp8") == check_format(8, 32, "mxfp8") == Format(8, 32, "mxfp8")


def test_bf16_rounds_to_nearest_even_and_keeps_nan() -> None:
    bits = np.array([0x3F808000, 0x3F818000, 0x3F808001, 0x7F7FFFFF, 0x7FC00001, 0x7F800001], np.uint32)
    stored = from_float32(bits.view(np.float32), "BF16")
    assert [hex(value) for value in stored[:4]] == ["0x3f80", "0x3f82", "0x3f81", "0x7f80"]
    assert np.isnan(to_float32(stored[4:], "BF16")).all()
