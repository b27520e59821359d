"""Make the tiny checkpoints of mixture of experts, gated delta nets and Gemma 4 under tests/golden/families.

    oracles/bin/python tests/golden/make_family_checkpoints.py [name ...]  # environment: make_checkpoints.py

Committed and deterministic. For every family in make_families.py:

- `<name>`: as transformers 5 writes it (`config.json`); `config.hub.json`: the Hub's older keys. Experts lie
  one by one where transformers writes them so. Qwen3.5 checkpoints have a vision tower (ignored) and `mtp.*`.
- `<name>-fused`, `-hub`, `-mlx`: the same values in other tensors, so the same goldens (`golden` in the
  manifest names the file): experts of a layer in one tensor; the Hub's names and dtypes; what
  `mlx_lm.convert` writes. Their tokenizer is that of `<name>`.
- `<name>-q4g32` and so on: what `mlx_lm.convert` quantises.
- `<file>.npz`: what transformers computes in float32 (quantised copies: on weights dequantised by an
  independent reader), cross-checked with mlx-lm in float32; with `mtp_*` from mtp_reference.py.

`manifest.json` has the largest difference of the two oracles, how far the logits move when a part of weights
or config is wrong (`moves`), the least margin of a router on the goldens' tokens, versions, and the sha256 of
every file.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import io
import json
import logging
import shutil
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from make_architectures import VOCAB, save_tokenizer
from make_checkpoints import LEAST_MOVE, PACKAGES, TOLERANCE
from make_families import FAMILIES, Family, Quantised, build_family, weight
from make_family_oracles import (
    config_moves,
    family_golden,
    family_mlx_run,
    load_mlx_values,
    weights_move,
)
from make_oracles import load_reference, quantise, reference_logits
from mlx_lm.convert import convert
from mtp_reference import MtpReference
from safetensors.torch import load_file, save_file

OUT = Path(__file__).parent / "families"
DRAFTS = 3
_DROPPED = ("rope_parameters", "layer_types", "per_layer_config", "num_local_experts", "norm_topk_prob")


def save_base(arch: Family, folder: Path) -> None:
    """The checkpoint as transformers 5 writes it, and the older form of its config."""
    shutil.rmtree(folder, ignore_errors=True)
    build_family(arch).save_pretrained(folder)
    save_tokenizer(folder, arch.adds_bos)
    if arch.mtp:
        _rewrite(folder, lambda tensors: tensors | _one_by_one(mtp_tensors(arch)))
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.hub.json").write_text(json.dumps(hub_config(config, arch), indent=2) + "\n")


def hub_config(config: dict[str, Any], arch: Family) -> dict[str, Any]:
    hub = json.loads(json.dumps(config))
    text = hub.get("text_config", hub)
    for key in _DROPPED:
        if not (key == "layer_types" and arch.name.startswith("gemma")):
            text.pop(key, None)
    if arch.name.startswith("gemma"):  # the Hub's files have ropes of each kind of layer and the kinds
        text["rope_parameters"] = config["text_config"]["rope_parameters"]
    text.update(arch.hub)
    if text is not hub:
        hub["vocab_size"] = VOCAB
    hub["torch_dtype"] = hub.pop("dtype", arch.dtype)
    hub["transformers_version"] = "4.57.0"
    return dict(sorted(hub.items()))


def mtp_tensors(arch: Family) -> dict[str, Any]:
    """Names as in Qwen3.5's own files: top level, experts fused."""
    c = arch.config.get("text_config", arch.config)
    hidden, size = c["hidden_size"], c["head_dim"]
    heads, kv = c["num_attention_heads"], c["num_key_value_heads"]
    layer: dict[str, tuple[int, ...]] = {
        "input_layernorm.weight": (hidden,),
        "post_attention_layernorm.weight": (hidden,),
        "self_attn.q_proj.weight": (2 * heads * size, hidden),
        "self_attn.k_proj.weight": (kv * size, hidden),
        "self_attn.v_proj.weight": (kv * size, hidden),
        "self_attn.o_proj.weight": (hidden, heads * size),
        "self_attn.q_norm.weight": (size,),
        "self_attn.k_norm.weight": (size,),
    }
    if "num_experts" in c:
        experts, inter = c["num_experts"], c["moe_intermediate_size"]
        layer |= {
            "mlp.gate.weight": (experts, hidden),
            "mlp.experts.gate_up_proj": (experts, 2 * inter, hidden),
            "mlp.experts.down_proj": (experts, hidden, inter),
            "mlp.shared_expert_gate.weight": (1, hidden),
        }
        layer |= _mlp_shapes("mlp.shared_expert.", hidden, c["shared_expert_intermediate_size"])
    else:
        layer |= _mlp_shapes("mlp.", hidden, c["intermediate_size"])
    shapes = {f"mtp.layers.0.{name}": shape for name, shape in layer.items()} | {
        "mtp.fc.weight": (hidden, 2 * hidden),
        "mtp.norm.weight": (hidden,),
        "mtp.pre_fc_norm_embedding.weight": (hidden,),
        "mtp.pre_fc_norm_hidden.weight": (hidden,),
    }
    rng = np.random.default_rng(sum(arch.name.encode()) + 1)
    dtype = getattr(torch, arch.dtype)
    return {
        name: torch.from_numpy(weight(name, shape, arch, rng)).to(torch.bfloat16).to(dtype)
        for name, shape in sorted(shapes.items())
    }


def _one_by_one(tensors: dict[str, Any]) -> dict[str, Any]:
    """Experts of the head in tensors of their own, as some quantised publications have them."""
    result: dict[str, Any] = {}
    for name, tensor in tensors.items():
        for index, expert in enumerate(tensor if ".experts." in name else ()):
            at = f"{name.rsplit('.', 1)[0]}.{index}"
            if name.endswith("down_proj"):
                result[f"{at}.down_proj.weight"] = expert
            else:
                result[f"{at}.gate_proj.weight"], result[f"{at}.up_proj.weight"] = expert.chunk(2)
        if ".experts." not in name:
            result[name] = tensor
    return result


def _mlp_shapes(at: str, hidden: int, inter: int) -> dict[str, tuple[int, ...]]:
    return {
        f"{at}gate_proj.weight": (inter, hidden),
        f"{at}up_proj.weight": (inter, hidden),
        f"{at}down_proj.weight": (hidden, inter),
    }


def _rewrite(folder: Path, change: Any) -> None:
    path = folder / "model.safetensors"
    tensors = {name: tensor.contiguous() for name, tensor in change(load_file(path)).items()}
    save_file(tensors, path, metadata={"format": "pt"})


def save_fused(arch: Family, base: Path, folder: Path) -> None:
    """Experts as transformers holds them: `mlp.experts.gate_up_proj`, `mlp.experts.down_proj`."""
    shutil.copytree(base, folder, ignore=shutil.ignore_patterns("*.safetensors", "config.hub.json"))
    build_family(arch).save_pretrained(folder, save_original_format=False)


def save_hub(arch: Family, base: Path, folder: Path) -> None:
    """As the publisher's own files: older keys, fused experts, decays and gated norms in float32."""
    shutil.copytree(base, folder, ignore=shutil.ignore_patterns("*.safetensors", "config.hub.json"))
    build_family(arch).save_pretrained(folder, save_original_format=False)
    shutil.copy(base / "config.hub.json", folder / "config.json")

    def change(tensors: dict[str, Any]) -> dict[str, Any]:
        wide = ("A_log", "linear_attn.norm.weight")
        tensors = {n: t.float() if n.endswith(wide) else t for n, t in tensors.items()}
        return tensors | (mtp_tensors(arch) if arch.mtp else {})

    _rewrite(folder, change)


def mlx_source(arch: Family, base: Path, scratch: Path) -> Path:
    """A copy that mlx-lm can read: older keys, fused experts for qwen3_5_moe, no `_text` in the type."""
    source = scratch / arch.name
    if arch.name.startswith("qwen3_5_moe"):
        save_hub(arch, base, source)
    else:
        shutil.copytree(base, source, ignore=shutil.ignore_patterns("config.hub.json"))
    config = json.loads((base / "config.hub.json").read_text())
    config["model_type"] = config["model_type"].removesuffix("_text")
    (source / "config.json").write_text(json.dumps(config, indent=2))
    return source


def save_mlx(source: Path, folder: Path) -> None:
    with contextlib.redirect_stdout(io.StringIO()):
        convert(str(source), str(folder))
    (folder / "README.md").unlink(missing_ok=True)


def save_quantised(arch: Family, source: Path, folder: Path, variant: Quantised) -> None:
    if variant.overrides:
        quantise(source, folder, variant)
        return
    with contextlib.redirect_stdout(io.StringIO()):  # mlx-lm's own predicate
        convert(str(source), str(folder), quantize=True, q_bits=variant.bits, q_group_size=variant.group_size)
    (folder / "README.md").unlink(missing_ok=True)


def add_mtp(
    arch: Family, folder: Path, model: Any, result: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The model's states, MTP logits of every pair of the prompt, normed output of the last, drafts behind.

    And how far the logits move from that when the head is fed otherwise.
    """
    tensors = {}
    for name, tensor in (load_file(folder / "model.safetensors") | mtp_tensors(arch)).items():
        tensors[name.replace("model.language_model.", "model.")] = tensor.float().numpy()
    config = json.loads((folder / "config.json").read_text())
    text = config.get("text_config", config)
    seen: list[Any] = []
    norm = model.model.language_model.norm
    before: list[Any] = []

    def keep(_module: Any, inputs: Any, output: Any) -> None:
        before.append(inputs[0][0].numpy().copy())
        seen.append(output[0].numpy().copy())

    hook = norm.register_forward_hook(keep)
    reference_logits(model, result["prompt"][None])
    hook.remove()
    reference = MtpReference(tensors, text)
    prompt, states = result["prompt"], seen[0]
    hidden = reference.hidden(states[:-1], prompt[1:])
    pairs = torch.from_numpy(reference.pairs(states[:-1], prompt[1:])[None]).float()
    layer = mtp_layer(arch, model)(inputs_embeds=pairs, use_cache=False)
    difference = float(np.abs(layer.last_hidden_state[0].numpy() - hidden).max())
    if difference > TOLERANCE:
        raise RuntimeError(f"{arch.name}: the head's layer is not transformers': {difference}")
    logits = reference.logits(hidden)
    drafts, margins = reference.drafts(states, prompt, int(result["greedy"][0]), DRAFTS)
    other = {
        "mtp hidden state before the final norm": reference.hidden(before[0][:-1], prompt[1:]),
        "mtp embedding of the same token": reference.hidden(states[:-1], prompt[:-1]),
    }
    moves = {what: float(np.abs(reference.logits(h) - logits).max()) for what, h in other.items()}
    facts = {"mtp": True, "mtp_layer_max_difference": difference, "mtp_moves": moves}
    return {
        "mtp_states": states,
        "mtp_logits": logits.astype(np.float32),
        "mtp_hidden": hidden[-1].astype(np.float32),
        "mtp_drafts": np.array(drafts, np.int32),
        "mtp_margins": np.array(margins, np.float32),
    }, facts


@torch.no_grad()
def mtp_layer(arch: Family, model: Any) -> Any:
    """The head's layer and norm as a model of transformers, to check mtp_reference.py on what both have."""
    config = model.config.get_text_config()
    one = {"num_hidden_layers": 1, "layer_types": ["full_attention"]}
    text = type(config)(**config.to_dict() | one)
    text._attn_implementation = "eager"
    own = type(model.model.language_model)(text).eval().requires_grad_(False)
    weights = {n.removeprefix("mtp."): t.float() for n, t in mtp_tensors(arch).items()}
    own.load_state_dict({n: weights[n] for n in own.state_dict() if n != "embed_tokens.weight"}, strict=False)
    return own


def check_form(name: str, model: Any, result: dict[str, Any]) -> None:
    """Another form of the same values: bit for bit the same logits."""
    if not np.array_equal(reference_logits(model, result["prompt"][None])[0], result["logits"]):
        raise RuntimeError(f"{name}: other values than the base")


def entry(name: str, arch: Family, result: dict[str, Any], router: float, **facts: Any) -> dict[str, Any]:
    np.savez_compressed(OUT / f"{name}.npz", **result)
    if facts["mlx_max_logit_difference"] > TOLERANCE or facts["mlx_greedy_ids_that_differ"]:
        raise RuntimeError(f"{name}: the oracles disagree: {facts}")
    text = {
        "model_type": arch.name.split("-")[0],
        "dtype": arch.dtype,
        "layers": len(result["hidden_norm"]) - 2,
        "golden": name,
        "smallest_margin": round(float(result["margins"].min()), 4),
        "logit_std": round(float(result["logits"].std()), 3),
        **({"router_margin": round(router, 4)} if np.isfinite(router) else {}),
        **{k: float(f"{v:.2g}") if isinstance(v, float) else v for k, v in facts.items()},
    }
    print(name, {k: v for k, v in text.items() if k != "moves"}, flush=True)
    return text


def make(arch: Family, scratch: Path) -> dict[str, Any]:
    base = OUT / arch.name
    for old in OUT.glob(f"{arch.name}*"):
        form = old.name.removesuffix(".npz").removeprefix(arch.name)
        if form in ("", "-fused", "-hub", "-mlx") or form.startswith("-q"):
            shutil.rmtree(old) if old.is_dir() else old.unlink()
    save_base(arch, base)
    model = load_reference(base, arch)
    result, router = family_golden(model, arch.positions)
    check_form(f"{arch.name}, older config", load_reference(base, arch, "config.hub.json"), result)
    moves = weights_move(model, result) | config_moves(base, arch, result)
    weak = {what: far for what, far in moves.items() if far < LEAST_MOVE}
    if weak:
        raise RuntimeError(f"{arch.name}: a fault would not show: {weak}")
    mtp_facts: dict[str, Any] = {}
    if arch.mtp:
        arrays, mtp_facts = add_mtp(arch, base, model, result)
        result |= arrays
    source = mlx_source(arch, base, scratch)
    moves |= mtp_facts.pop("mtp_moves", {})
    facts: dict[str, Any] = family_mlx_run(source, result) | mtp_facts
    facts["moves"] = {what: float(f"{far:.2g}") for what, far in sorted(moves.items())}
    entries = {arch.name: entry(arch.name, arch, result, router, **facts)}
    for form in arch.forms:
        name = f"{arch.name}-{form}"
        if form == "mlx":
            save_mlx(source, OUT / name)
            check_form(name, load_mlx_values(base, OUT / name, arch), result)
        else:
            {"fused": save_fused, "hub": save_hub}[form](arch, base, OUT / name)
            check_form(name, load_reference(OUT / name, arch), result)
        for part in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):  # the base has them
            (OUT / name / part).unlink()
        entries[name] = entries[arch.name] | {"form": form}
        for key in ("moves", *(mtp_facts if form == "mlx" else ())):  # mlx-lm drops the head
            entries[name].pop(key)
    for variant in arch.variants:
        name = f"{arch.name}-{variant.suffix}"
        save_quantised(arch, source, OUT / name, variant)
        own, router = family_golden(load_mlx_values(base, OUT / name, arch), 0)
        more = {"form": "mlx", "base": arch.name, "bits": variant.bits, "group_size": variant.group_size}
        entries[name] = entry(name, arch, own, router, **more, **family_mlx_run(OUT / name, own))
    return entries


def main(names: list[str]) -> None:
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    OUT.mkdir(parents=True, exist_ok=True)
    path = OUT / "manifest.json"
    entries = json.loads(path.read_text())["checkpoints"] if names and path.exists() else {}
    for arch in FAMILIES:
        if not names or arch.name in names:
            with tempfile.TemporaryDirectory() as scratch:
                entries |= make(arch, Path(scratch))
    files = sorted(p for p in OUT.rglob("*") if p.is_file() and p.name != "manifest.json")
    manifest = {
        "made_by": "tests/golden/make_family_checkpoints.py",
        "versions": {package: importlib.metadata.version(package) for package in PACKAGES},
        "checkpoints": dict(sorted(entries.items())),
        "sha256": {p.relative_to(OUT).as_posix(): hashlib.sha256(p.read_bytes()).hexdigest() for p in files},
    }
    path.write_text(json.dumps(manifest, indent=1) + "\n")
    print(f"{sum(p.stat().st_size for p in files) / 1e6:.1f} MB in {len(files)} files")


if __name__ == "__main__":
    main(sys.argv[1:])
