"""Wrong arguments of the library, and configs with impossible numbers: our errors, never Python's own."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import saragossa
from saragossa import _core
from saragossa.errors import ConfigError, TokenizerError, UsageError

GOLDEN = Path(__file__).parents[1] / "golden" / "checkpoints"
HELLO = [{"role": "user", "content": "Hello"}]


@pytest.fixture(scope="module")
def llm(tmp_path_factory: pytest.TempPathFactory) -> saragossa.LLM:
    folder = tmp_path_factory.mktemp("model") / "qwen3"
    shutil.copytree(GOLDEN / "qwen3", folder)
    template = "{% for m in messages %}{{ m.content }}{% endfor %}{{ mood }}"
    (folder / "chat_template.jinja").write_text(template)
    return saragossa.LLM(folder, device="cpu")


CALLS: dict[str, tuple[Callable[[Any], object], str]] = {
    "tokenize None": (lambda m: m.tokenize(None), "a text is a string, not NoneType"),
    "tokenize bytes": (lambda m: m.tokenize(b"a"), "a text is a string, not bytes"),
    "detokenize None": (lambda m: m.detokenize(None), "token ids are a sequence of whole numbers, not None"),
    "detokenize text": (lambda m: m.detokenize("12"), "token ids are a sequence of whole numbers, not str"),
    "detokenize strings": (lambda m: m.detokenize(["1"]), "a token id is a whole number, found '1'"),
    "detokenize below": (lambda m: m.detokenize([-1]), "token id -1 is out of range"),
    "detokenize above": (lambda m: m.detokenize([277]), "token id 277 is out of range"),
    "generate None": (lambda m: m.generate(None), "a prompt is a string"),
    "generate options": (lambda m: m.generate("a", {"top_k": 1}), "options are GenerationOptions, not dict"),
    "stream options": (lambda m: m.stream("a", 5), "options are GenerationOptions, not int"),
    "stream None": (lambda m: m.stream(None), "a prompt is a string or token ids, not NoneType"),
    "chat None": (lambda m: m.chat(None), "messages must be a list"),
    "chat text": (lambda m: m.chat("hi"), "messages must be a list"),
    "chat texts": (lambda m: m.chat(["hi"]), r"messages\[0\] is a str"),
    "chat number": (lambda m: m.chat(7), "messages must be a list"),
    "chat content": (lambda m: m.chat([{"role": "user", "content": 7}]), r"messages\[0\].content is a int"),
    "chat role": (lambda m: m.chat([{"role": []}]), r"messages\[0\].role is \[\]"),
    "chat options": (lambda m: m.chat(HELLO, options={}), "options are GenerationOptions, not dict"),
    "tools": (lambda m: m.chat(HELLO, tools=7), "tools must be a list"),
    "template list": (
        lambda m: m.chat(HELLO, template_arguments=["mood"]),
        "template_arguments is a list, a mapping of names is expected",
    ),
    "template keys": (
        lambda m: m.chat(HELLO, template_arguments={1: 2}),
        "template_arguments has the key 1, a name is expected",
    ),
    "template messages": (
        lambda m: m.chat(HELLO, template_arguments={"messages": []}),
        "messages is not a variable of one's own",
    ),
    "template flag": (
        lambda m: m.chat(HELLO, template_arguments={"continue_final_message": "no"}),
        "continue_final_message is 'no', True or False is expected",
    ),
    "thinking": (lambda m: m.chat(HELLO, enable_thinking="no"), "enable_thinking is 'no', True or False"),
}


@pytest.mark.parametrize("name", CALLS)
def test_arguments_of_calls(llm: saragossa.LLM, name: str) -> None:
    call, message = CALLS[name]
    with pytest.raises(UsageError, match=message):
        call(llm)


def test_template_arguments_that_are_right(llm: saragossa.LLM) -> None:
    plain = llm.chat_ids(HELLO)
    assert llm.chat_ids(HELLO, mood="!") == plain + llm.tokenize("!", add_special=False)
    done = llm.chat(HELLO, template_arguments={"mood": "!", "tokenizer": 1, "self": 2}, max_tokens=1)
    assert done.prompt_tokens == len(plain) + 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"context": "5"}, "context: found '5', accepted is 1 to"),
        ({"context": 5.0}, "context: found 5.0, accepted is 1 to"),
        ({"threads": "2"}, "threads: found '2', accepted is a whole number from 0 to 1024"),
        ({"threads": 1.5}, "threads: found 1.5, accepted is a whole number"),
        ({"threads": True}, "threads: found True, accepted is a whole number"),
        ({"threads": 5000}, "threads: found 5000, accepted is a whole number from 0 to 1024"),
        ({"exact": "yes"}, "exact: found 'yes', accepted is True or False"),
        ({"kv": "int8"}, "kv: found 'int8', accepted is bf16, u8, f32"),
        ({"kv": 8}, "kv: found 8, accepted is bf16, u8, f32"),
        ({"kv": "u8", "exact": True}, "kv: found 'u8', accepted with exact is f32"),
        ({"device": 1}, "device: found 1, accepted is auto, cpu or metal"),
        ({"revision": 1}, "revision: found 1, accepted is a branch, a tag or a commit"),
    ],
)
def test_arguments_of_loading(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        saragossa.LLM(GOLDEN / "qwen3", **{"device": "cpu", **arguments})


def changed(folder: Path, changes: str, file: str = "config.json") -> Path:
    """A copy of the golden model whose config has further keys, given as JSON text."""
    shutil.copytree(GOLDEN / "qwen3", folder)
    config = json.loads((folder / file).read_text()) if (folder / file).exists() else {}
    new = json.loads(changes)
    config = {key: value for key, value in config.items() if key not in ("rope_parameters", *new)}
    text = json.dumps(config)[:-1] + (", " if config else "") + changes[1:]
    (folder / file).write_text(text)
    return folder


HUGE = "1" + "0" * 400


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ('{"rope_theta": 1e400}', "rope_theta"),
        (f'{{"rope_theta": {HUGE}}}', "rope_theta"),
        ('{"rope_theta": 1e300}', "rope_theta"),
        ('{"rope_theta": 1e-300}', "rope_theta"),
        (f'{{"rope_parameters": {{"rope_theta": {HUGE}}}}}', "rope_theta"),
        ('{"rope_parameters": {"rope_theta": 1e-300}}', "rope_theta"),
        ('{"rope_parameters": {"rope_theta": 0.5}}', "rope_theta"),
        (f'{{"rope_scaling": {{"type": "linear", "factor": {HUGE}}}}}', "factor"),
        ('{"rope_scaling": {"type": "yarn", "factor": 4.0, "beta_fast": 1e-320}}', "beta_fast"),
        ('{"rope_scaling": {"type": "yarn", "factor": 4.0, "attention_factor": 1e39}}', "attention_factor"),
        (f'{{"partial_rotary_factor": {HUGE}}}', "partial_rotary_factor"),
        ('{"rms_norm_eps": 1e60}', "rms_norm_eps"),
        (f'{{"rms_norm_eps": {HUGE}}}', "rms_norm_eps"),
        (f'{{"hidden_size": {HUGE}}}', "hidden_size"),
    ],
)
def test_numbers_beyond_all_bounds(tmp_path: Path, changes: str, key: str) -> None:
    with pytest.raises(ConfigError, match=rf"config\.json: .*{key}"):
        saragossa.LLM(changed(tmp_path / "m", changes), device="cpu")


@pytest.mark.parametrize("text", [None, "{}", "no JSON"])
def test_a_wrong_tokenizer_is_named_before_memory_is_spent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str | None
) -> None:
    folder = shutil.copytree(GOLDEN / "qwen3", tmp_path / "m")
    (folder / "tokenizer.json").unlink()
    if text is not None:
        (folder / "tokenizer.json").write_text(text)
    monkeypatch.setattr(_core, "Model", lambda *_, **__: pytest.fail("the weights are loaded"))
    with pytest.raises(TokenizerError, match=r"tokenizer\.json"):
        saragossa.LLM(folder, device="cpu")


@pytest.mark.parametrize("file", ["config.json", "generation_config.json"])
@pytest.mark.parametrize("value", ["277", "[1, 500]", HUGE])
def test_end_tokens_outside_the_vocabulary(tmp_path: Path, file: str, value: str) -> None:
    folder = changed(tmp_path / "m", f'{{"eos_token_id": {value}}}', file)
    with pytest.raises(ConfigError, match=rf"{file}: eos_token_id .* the vocabulary has 277"):
        saragossa.LLM(folder, device="cpu")
