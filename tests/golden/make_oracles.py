"""The two reference implementations behind the goldens: transformers and mlx-lm, both in float32.

Used by make_checkpoints.py, which names the requirements.
"""

from __future__ import annotations

import contextlib
import io
import json
import shutil
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import torch
import transformers
from make_architectures import BOS, EOS, PAD, VOCAB, Architecture, Variant
from mlx_lm.convert import convert
from mlx_lm.models.cache import make_prompt_cache
from mlx_lm.utils import load_model
from safetensors.torch import load_file

PROMPT_TOKENS, GREEDY_TOKENS = 40, 16
LONG_GREEDY, LONG_POSITIONS = 8, 8
CANDIDATES = 96  # prompts tried: the one whose greedy answer is the least of a near tie is kept
_FIRST_ID, _LAST_ID = 4, VOCAB - 4  # no specials, none of Gemma's image ids

torch.set_num_threads(1)
transformers.utils.logging.disable_progress_bar()
mx.disable_compile()


def load_reference(folder: Path, arch: Architecture, config_name: str = "config.json") -> Any:
    """transformers' model in float32 with the weights as stored."""
    config = getattr(transformers, arch.config_class).from_json_file(folder / config_name)
    config._attn_implementation = "eager"
    model_class = getattr(transformers, arch.model_class)
    return model_class.from_pretrained(folder, config=config, dtype=torch.float32).eval()


def reference_logits(model: Any, ids: Any) -> Any:
    """Teacher-forced logits [batch, tokens, vocab] of ids [batch, tokens]."""
    with torch.no_grad():
        return model(input_ids=torch.from_numpy(np.asarray(ids, np.int64)), use_cache=False).logits.numpy()


def _continue_greedily(model: Any, prompts: Any, steps: int) -> tuple[Any, Any, Any]:
    """Greedy ids and margins [batch, steps], logits [batch, vocab] of the last step; no cache involved."""
    ids, margins, last = np.asarray(prompts), [], np.zeros(0)
    for _ in range(steps):
        last = reference_logits(model, ids)[:, -1]
        top2 = np.sort(last, -1)[:, -2:]
        margins.append(top2[:, 1] - top2[:, 0])
        ids = np.concatenate([ids, last.argmax(-1)[:, None]], 1)
    return ids[:, -steps:], np.stack(margins, 1), last


def _candidate_prompts(tokens: int, count: int) -> Any:
    rng = np.random.default_rng(tokens)
    prompts = rng.integers(_FIRST_ID, _LAST_ID, (count, tokens))
    prompts[:, 0] = BOS
    return prompts


def _best(ids: Any, margins: Any) -> int:
    """The candidate with the widest smallest margin that neither stops nor repeats itself."""
    stops = np.isin(ids, [PAD, EOS, BOS, 3]).any(1)
    distinct = np.array([len(set(row)) for row in ids.tolist()])
    score = margins.min(1) - 10.0 * stops - 10.0 * (distinct < ids.shape[1] // 2)
    return int(score.argmax())


def golden(model: Any, long: int) -> dict[str, Any]:
    """Everything that one golden file holds, from transformers in float32; long: of another prompt."""
    prompts = _candidate_prompts(PROMPT_TOKENS, CANDIDATES)
    ids, margins, last = _continue_greedily(model, prompts, GREEDY_TOKENS)
    best = _best(ids, margins)
    prompt = prompts[best]
    first8, norms = _fingerprints(model, prompt)
    result = {
        "prompt": prompt.astype(np.int32),
        "logits": reference_logits(model, prompt[None])[0],
        "greedy": ids[best].astype(np.int32),
        "margins": margins[best].astype(np.float32),
        "decode_logits": last[best],
        "hidden_first8": first8,
        "hidden_norm": norms,
    }
    if long:
        prompts = _candidate_prompts(long, 8)
        ids, margins, _ = _continue_greedily(model, prompts, LONG_GREEDY)
        best = _best(ids, margins)
        result |= {
            "long_prompt": prompts[best].astype(np.int32),
            "long_logits": reference_logits(model, prompts[best][None])[0, -LONG_POSITIONS:],
            "long_greedy": ids[best].astype(np.int32),
            "long_margins": margins[best].astype(np.float32),
        }
    return result


def _fingerprints(model: Any, prompt: Any) -> tuple[Any, Any]:
    """First 8 values and L2 norm of the last position: embedding, after each layer, after the final norm."""
    decoder = model.model.language_model if hasattr(model.model, "language_model") else model.model
    seen: list[Any] = []

    def keep(_module: Any, _inputs: Any, output: Any) -> None:
        hidden = output[0] if isinstance(output, tuple) else output
        seen.append(hidden[0, -1].numpy().copy())

    modules = [decoder.embed_tokens, *decoder.layers, decoder.norm]
    hooks = [module.register_forward_hook(keep) for module in modules]
    reference_logits(model, prompt[None])
    for hook in hooks:
        hook.remove()
    return np.stack([h[:8] for h in seen]), np.array([np.linalg.norm(h) for h in seen], np.float32)


def quantise(source: Path, target: Path, variant: Variant) -> None:
    """Real `mlx_lm.convert`; `source` holds the older config form, which mlx-lm reads."""

    unquantised: list[str] = []

    def predicate(path: str, _module: Any) -> Any:
        for ending, value in variant.overrides.items():
            if path.endswith(ending):
                if value is False:
                    unquantised.append(path)
                return dict(value) if value else False
        return True

    with contextlib.redirect_stdout(io.StringIO()):
        convert(
            str(source),
            str(target),
            quantize=True,
            q_bits=variant.bits,
            q_group_size=variant.group_size,
            q_mode=variant.mode,
            quant_predicate=predicate if variant.overrides else None,
        )
    (target / "README.md").unlink(missing_ok=True)
    if unquantised:  # mlx-lm reads `false` but its convert leaves such a module unnamed; other tools write it
        config = json.loads((target / "config.json").read_text())
        for block in ("quantization", "quantization_config"):
            config[block] |= dict.fromkeys(unquantised, False)
        (target / "config.json").write_text(json.dumps(config, indent=4))


def mlx_run(folder: Path, arch: Architecture, result: dict[str, Any]) -> dict[str, float]:
    """mlx-lm in float32 on the same file: largest difference of the logits, greedy ids that differ."""
    model, _ = load_model(folder)
    if arch.name == "mistral":  # mlx-lm maps mistral to llama and drops the window; its llama can do it
        inner = model.model
        inner.swa_idx, inner.sliding_window = 0, arch.config["sliding_window"]
        for layer in inner.layers:
            layer.use_sliding = True
    model.set_dtype(mx.float32)
    if arch.name.startswith("gemma"):
        model = _ExactEmbeddingScale(model, arch)
    difference = _mlx_difference(model, result["prompt"], result["logits"])
    wrong = _mlx_wrong_ids(model, result["prompt"], result["greedy"])
    if "long_prompt" in result:
        difference = max(difference, _mlx_difference(model, result["long_prompt"], result["long_logits"]))
        wrong += _mlx_wrong_ids(model, result["long_prompt"], result["long_greedy"])
    return {"mlx_max_logit_difference": difference, "mlx_greedy_ids_that_differ": wrong}


class _ExactEmbeddingScale:
    """mlx-lm rounds sqrt(hidden) to bfloat16; here the embedding comes in with the rounding divided out."""

    def __init__(self, model: Any, arch: Architecture) -> None:
        hidden = arch.config.get("text_config", arch.config)["hidden_size"]
        self.model, self.layers, self.make_cache = model, model.layers, model.make_cache
        self.embed = (model.language_model if hasattr(model, "language_model") else model).model.embed_tokens
        self.ratio = hidden**0.5 / mx.array(hidden**0.5, mx.bfloat16).astype(mx.float32)

    def __call__(self, ids: Any, cache: Any = None) -> Any:
        return self.model(ids, cache=cache, input_embeddings=self.embed(ids) * self.ratio)


def _mlx_difference(model: Any, prompt: Any, logits: Any) -> float:
    got = np.array(model(mx.array(prompt)[None])[0].astype(mx.float32))[-len(logits) :]
    return float(np.abs(got - logits).max())


def _mlx_wrong_ids(model: Any, prompt: Any, greedy: Any) -> int:
    cache = make_prompt_cache(model)
    logits, ids = model(mx.array(prompt)[None], cache=cache)[:, -1], []
    for _ in range(len(greedy)):
        token = mx.argmax(logits, -1)
        ids.append(int(token.item()))
        logits = model(token[:, None], cache=cache)[:, -1]
    return int((np.array(ids) != greedy).sum())


def dequantise(folder: Path) -> dict[str, Any]:
    """Names of the MLX file to float32 arrays: an own reading of the layout, not mlx's."""
    quantization = json.loads((folder / "config.json").read_text()).get("quantization", {})
    stored = _load_arrays(folder)
    result = {}
    for name, array in stored.items():
        module = name.removesuffix(".weight")
        if name.endswith((".scales", ".biases")):
            continue
        if f"{module}.scales" not in stored:
            result[name] = array
            continue
        own = quantization.get(module)
        params = own if isinstance(own, dict) else quantization
        codes, scales = _unpack(array, params["bits"]), stored[f"{module}.scales"]
        if params.get("mode", "affine") == "affine":
            values, factors, biases = codes.astype(np.float32), scales, stored[f"{module}.biases"][..., None]
        else:
            values = _small_floats(codes, exponent_bits=2 if params["bits"] == 4 else 4)
            factors, biases = np.exp2(scales.astype(np.float32) - 127), np.float32(0)
        rows = codes.shape[:-1]
        groups = values.reshape(*rows, -1, params["group_size"]) * factors[..., None] + biases
        result[name] = groups.reshape(*rows, -1)
    return result


def _unpack(words: Any, bits: int) -> Any:
    """uint32 [..., in * bits / 32], a row-wise LSB-first bit stream, to codes [..., in]."""
    stream = np.unpackbits(np.ascontiguousarray(words).view(np.uint8), axis=-1, bitorder="little")
    return (stream.reshape(*words.shape[:-1], -1, bits) * (1 << np.arange(bits))).sum(-1)


def _small_floats(codes: Any, exponent_bits: int) -> Any:
    """E2M1 or E4M3 (finite) as float32: sign, exponent, mantissa of one or three bits."""
    mantissa_bits = exponent_bits - 1
    mantissa = codes & ((1 << mantissa_bits) - 1)
    exponent = codes >> mantissa_bits & ((1 << exponent_bits) - 1)
    leading = np.where(exponent > 0, 1 << mantissa_bits, 0)
    power = np.maximum(exponent, 1) - ((1 << (exponent_bits - 1)) - 1) - mantissa_bits
    sign = np.where(codes >> (exponent_bits + mantissa_bits), -1.0, 1.0)
    return (sign * (leading + mantissa) * np.exp2(power)).astype(np.float32)


def _load_arrays(folder: Path) -> dict[str, Any]:
    arrays: dict[str, Any] = {}
    for file in sorted(folder.glob("*.safetensors")):
        for name, tensor in load_file(file).items():
            arrays[name] = (tensor.float() if tensor.is_floating_point() else tensor).numpy()
    return arrays


def load_dequantised(base: Path, quantised: Path, arch: Architecture) -> Any:
    """transformers' model of `base` with the weights of the MLX file put in its place."""
    model = load_reference(base, arch)
    own = dict(model.named_parameters())
    missing = {n for n in own if not n.startswith(("model.vision_tower", "model.multi_modal_projector"))}
    with torch.no_grad():
        for name, array in dequantise(quantised).items():
            if name.startswith("language_model."):
                name = "model.language_model." + name.removeprefix("language_model.model.")
            own[name].copy_(torch.from_numpy(array))
            missing.discard(name)
    if missing - {"lm_head.weight"} or ("lm_head.weight" in missing and not _tied(model)):
        raise RuntimeError(f"{quantised}: the MLX file does not set {sorted(missing)}")
    model.tie_weights()
    return model


def _tied(model: Any) -> bool:
    return bool(model.config.get_text_config().tie_word_embeddings)


def sensitivity(folder: Path, arch: Architecture, result: dict[str, Any]) -> dict[str, float]:
    """How far the logits move when a loader forgets a part of the config: a golden must be able to fail."""
    moved = {}
    for what, change in _ablations(arch).items():
        model = load_reference(folder, arch)
        config = json.loads((folder / "config.json").read_text())
        change(config.get("text_config", config))
        ablated = getattr(transformers, arch.config_class)(**config)
        ablated._attn_implementation = "eager"
        other = getattr(transformers, arch.model_class)(ablated).eval()
        weights = model.state_dict()
        if what == "biases":
            weights = {n: torch.zeros_like(w) if n.endswith("proj.bias") else w for n, w in weights.items()}
        other.load_state_dict(weights, strict=False)
        logits = reference_logits(other, result["prompt"][None])[0]
        moved[what] = float(np.abs(logits - result["logits"]).max())
    return moved


def _ablations(arch: Architecture) -> dict[str, Any]:
    text = arch.config.get("text_config", arch.config)
    changes: dict[str, Any] = {}

    def plain_rope(config: dict[str, Any]) -> None:
        ropes = config["rope_parameters"]
        for rope in [ropes] if "rope_theta" in ropes else list(ropes.values()):
            rope["rope_type"] = "default"

    def default_theta(config: dict[str, Any]) -> None:
        ropes = config["rope_parameters"]
        for rope in [ropes] if "rope_theta" in ropes else list(ropes.values()):
            rope["rope_theta"] = 2e4

    changes["rope_theta"] = default_theta
    if any(kind in json.dumps(text["rope_parameters"]) for kind in ("llama3", "yarn", "linear")):
        changes["rope_scaling"] = plain_rope
    if text.get("sliding_window"):
        changes["sliding_window"] = lambda c: c.update(sliding_window=2048)
        changes["sliding_window_off_by_one"] = lambda c: c.update(sliding_window=text["sliding_window"] + 1)
    if "query_pre_attn_scalar" in text:
        changes["query_pre_attn_scalar"] = lambda c: c.update(query_pre_attn_scalar=text["head_dim"])
    if text.get("attention_bias") or arch.name == "qwen2":
        changes["biases"] = lambda c: None
    return changes


def copy_without(source: Path, target: Path, *names: str) -> Path:
    shutil.copytree(source, target, ignore=shutil.ignore_patterns(*names))
    return target
