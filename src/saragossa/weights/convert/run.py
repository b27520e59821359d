"""`convert`: an HF folder or a GGUF file becomes a folder in the MLX layout."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from saragossa.errors import ConvertError, UsageError
from saragossa.weights.locate import DEMO
from saragossa.weights.quantization import Format

from .floats import torch_name
from .output import check_absent, output_folder
from .plan import Plan
from .quantize import check_format
from .writer import write_checkpoint, write_json


@dataclass(frozen=True, slots=True)
class Report:
    """What a conversion wrote.

    bits_per_weight: bits of the weight files by parameters; skipped: modules left unquantised
    because the group size does not divide their rows (mlx-lm leaves them, too).
    """

    dst: Path
    model_type: str
    parameters: int
    nbytes: int
    bits_per_weight: float
    skipped: tuple[str, ...]


def convert(
    src: Path,
    dst: Path,
    *,
    bits: int | None = None,
    group_size: int | None = None,
    mode: str = "affine",
    dtype: str | None = None,
    overrides: Sequence[str] = (),
    mtp: bool = True,
    progress: bool = True,
) -> Report:
    """Converts the model `src`, an HF folder or a GGUF file, into the new folder `dst`.

    bits: quantise every linear, embedding and expert to 2, 3, 4, 5, 6 or 8 bits in groups of
    `group_size` (32, 64, 128; default 64), as `mlx_lm.convert` does; mode: or to mxfp4 or mxfp8, which
    say bits and group size themselves. Without either an HF folder keeps its weights and a GGUF file
    its own quantisation. dtype: bfloat16, float16 or float32 for what is not quantised.
    overrides: PATTERN=BITS[:GROUP], =mxfp4, =mxfp8 or =float, each for the modules whose name the
    pattern matches. mtp: keep the multi-token prediction of a model that has one.
    Raises UsageError on bad options, ConvertError on bad input or a failed write; `dst` then does
    not exist. `dst` must not exist before.
    """
    src, dst = Path(src), Path(dst)
    target = check_format(bits, group_size, mode)
    if dtype is not None:
        dtype = torch_name(dtype)
    check_absent(dst)
    if overrides and target is None:
        raise UsageError("overrides have no effect without bits or a mode", cure="add --bits 4")
    plan = _plan(src, target, dtype, overrides, mtp)
    nbytes = sum(job.nbytes for job in plan.jobs)
    parameters = sum(job.parameters for job in plan.jobs)
    copies = sum(path.stat().st_size for path in plan.copies.values())
    with output_folder(dst, nbytes + copies) as folder:
        for name, value in plan.json_files.items():
            write_json(folder / name, value, compact=name == "tokenizer.json")
        for name, path in plan.copies.items():
            (folder / name).parent.mkdir(exist_ok=True)
            shutil.copyfile(path, folder / name)
        write_checkpoint(folder, plan.jobs, progress=progress)
    return Report(
        dst=dst,
        model_type=str(plan.json_files["config.json"]["model_type"]),
        parameters=parameters,
        nbytes=nbytes,
        bits_per_weight=8 * nbytes / parameters,
        skipped=plan.skipped,
    )


def _plan(src: Path, target: Format | None, dtype: str | None, overrides: Sequence[str], mtp: bool) -> Plan:
    # Imported late: each kind of source brings its own libraries.
    if src.is_dir():
        from .hf import plan_hf

        return plan_hf(src, target, dtype, overrides, mtp=mtp)
    if not src.exists():
        if str(src) == DEMO:
            raise ConvertError(
                f"{DEMO} is converted already when it is fetched",
                cure=f"run it: saragossa run {DEMO}; or convert the folder of another model",
            )
        raise ConvertError(
            f"{src} does not exist", cure="give a .gguf file or a local model folder (saragossa pull REPO)"
        )
    from .gguf_import import plan_gguf

    return plan_gguf(src, target, dtype, overrides)
