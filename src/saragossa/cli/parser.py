"""The argument parser: every subcommand and option, with nothing heavy imported.

Each subcommand names the module of this package that runs it.
"""

from __future__ import annotations

import argparse
import sys
from typing import NoReturn, Protocol

from saragossa.cli.sampling_options import GENERATE_MAX_TOKENS, add_sampling_options

DEVICES = ("auto", "cpu", "metal")
DRAFTERS = ("off", "mtp", "draft", "lookup")
_GLOBAL = ("--debug",)
_MODEL = "a folder, a repository of the Hugging Face Hub (OWNER/NAME, with @REVISION), or demo"
_EPILOG = """\
A MODEL is a folder, a repository of the Hugging Face Hub (OWNER/NAME or OWNER/NAME@REVISION), or demo.
Without a subcommand, options are those of generate: saragossa --model-dir DIR --prompt TEXT.
Exit codes: 0, 1 it failed, 2 wrong options or input, 130 Ctrl-C.
"""


class Parser(argparse.ArgumentParser):
    """An ArgumentParser whose errors are one line, with the cure."""

    def error(self, message: str) -> NoReturn:
        print(f"saragossa: error: {message} (see: {self.prog} --help)", file=sys.stderr)
        raise SystemExit(2)


class _Command(Protocol):
    def __call__(self, name: str, summary: str, module: str | None = None) -> Parser: ...


class _Version(argparse.Action):
    def __call__(self, *_: object) -> NoReturn:
        from importlib.metadata import version  # slow: only when asked

        print(f"saragossa {version('saragossa')}")
        raise SystemExit(0)


def with_subcommand(arguments: list[str]) -> list[str]:
    """`saragossa --model-dir …` means `saragossa generate --model-dir …`."""
    at = 0
    while at < len(arguments) and arguments[at] in _GLOBAL:
        at += 1
    rest = arguments[at:]
    if rest and rest[0].startswith("-") and rest[0] not in ("-h", "--help", "--version"):
        return [*arguments[:at], "generate", *rest]
    return arguments


def parse(arguments: list[str]) -> argparse.Namespace:
    """The whole command line. Leaves with SystemExit, as argparse does."""
    parser = build_parser()
    args, extra = parser.parse_known_args(with_subcommand(arguments))
    # argparse gives an optional positional up when options stand before it: run MODEL --seed 1 PROMPT.
    if args.module == "run" and args.prompt is None and len(extra) == 1 and not extra[0].startswith("-"):
        args.prompt = extra.pop()
    if extra:
        parser.error(f"unrecognized arguments: {' '.join(extra)}")
    return args


def name(text: str) -> str:
    """A path or a model's name, for argparse. An empty one would mean the current folder."""
    if not text.strip():
        raise argparse.ArgumentTypeError(f"found {text!r}, accepted is a name that is not empty")
    return text


def positive(text: str) -> int:
    """A whole number of at least 1, for argparse."""
    if not (text.isascii() and text.isdigit() and 0 < len(text) <= 12 and int(text) > 0):
        raise argparse.ArgumentTypeError(f"found {text!r}, accepted is a whole number of at least 1")
    return int(text)


def positive_list(text: str) -> list[int]:
    """Comma-separated whole numbers, for argparse."""
    return [positive(part.strip()) for part in text.split(",")]


def whole_list(text: str) -> list[int]:
    """Comma-separated whole numbers, 0 among them, for argparse."""
    return [0 if part.strip() == "0" else positive(part.strip()) for part in text.split(",")]


def build_parser() -> Parser:
    """The whole command line."""
    common = Parser(add_help=False)
    common.add_argument("--debug", action="store_true", default=argparse.SUPPRESS, help="show tracebacks")
    parser = Parser(
        prog="saragossa",
        description="A local inference engine for language models.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", nargs=0, action=_Version, help="print the version and leave")
    parser.add_argument("--debug", action="store_true", help="show tracebacks")
    commands = parser.add_subparsers(metavar="COMMAND", required=True, parser_class=Parser, title="commands")

    def command(name: str, summary: str, module: str | None = None) -> Parser:
        sub: Parser = commands.add_parser(
            name,
            help=summary,
            description=summary[0].upper() + summary[1:] + ".",
            parents=[common],
            allow_abbrev=False,
        )
        sub.set_defaults(module=module or name)
        return sub

    _add_run(command("run", "chat with a model, or ask it one question"))
    _add_generate(command("generate", "generate text, for scripts and development"))
    _add_models(command)
    _add_convert(command("convert", "quantise a model folder, or import a GGUF file"))
    _add_bench(command("bench", "measure prefill, decode, load time and memory"))
    flags = command("flags", "print switches and settings with their values")
    flags.add_argument("--json", action="store_true", help="as one JSON object")
    _add_doctor(command("doctor", "describe this machine and check that the engine works on it"))
    return parser


def _add_engine_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("engine")
    group.add_argument(
        "--device", "--backend", choices=DEVICES, default="auto", help="where to compute (default: auto)"
    )
    group.add_argument(
        "--threads", type=int, metavar="N", help="CPU threads (default: the performance cores)"
    )
    group.add_argument("--context", type=positive, metavar="N", help="tokens that prompt and answer may have")
    group.add_argument(
        "--exact",
        action="store_true",
        help="float32 activations and cache, weights as stored: the exact path",
    )
    group.add_argument(
        "--kv",
        choices=("bf16", "u8", "f32"),
        help="how keys and values are stored: u8 takes about half of bf16's memory (default: bf16)",
    )


def _add_draft_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group(
        "drafts", "tokens that are guessed and verified: faster or not, the same text"
    )
    group.add_argument(
        "--speculate",
        choices=DRAFTERS,
        help="who guesses: the model's MTP head, a draft model, what stood before, or nobody (default: off)",
    )
    group.add_argument(
        "--draft-model", type=name, metavar="MODEL", help="a small model with the same tokenizer"
    )
    group.add_argument(
        "--draft-tokens", type=positive, metavar="N", help="guesses at most, 1 to 7 (default: 5)"
    )


def _add_chat_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("chat template")
    group.add_argument("--system", metavar="TEXT", help="the system message")
    group.add_argument(
        "--thinking",
        action=argparse.BooleanOptionalAction,
        help="let a reasoning model think first, or not (default: as its template says)",
    )


def _add_run(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", type=name, metavar="MODEL", help=_MODEL)
    parser.add_argument("prompt", metavar="PROMPT", nargs="?", help="one question; without it, a chat")
    _add_chat_options(parser)
    add_sampling_options(parser, "default: what the model's generation_config.json says")
    _add_engine_options(parser)
    _add_draft_options(parser)


def _add_generate(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--model-dir", "--model", dest="model", type=name, metavar="MODEL", required=True, help=_MODEL
    )
    prompt = parser.add_mutually_exclusive_group()
    prompt.add_argument("--prompt", metavar="TEXT", help="the prompt (default: standard input)")
    prompt.add_argument(
        "--prompt-file", type=name, metavar="FILE", help="read the prompt from a file, as it is; - is stdin"
    )
    prompt.add_argument("--ids", metavar="IDS", help='token ids as one string, "1 2 3"; no template')
    parser.add_argument("--raw", action="store_true", help="no chat template: the prompt as it is")
    _add_chat_options(parser)
    add_sampling_options(parser, f"default: plain greedy, no penalties, {GENERATE_MAX_TOKENS} tokens at most")
    output = parser.add_argument_group("output")
    output.add_argument(
        "--top-logprobs",
        type=int,
        metavar="N",
        help="log probabilities of each token and the N best (--json)",
    )
    output.add_argument("--json", action="store_true", help="print one JSON object at the end")
    output.add_argument("--metrics", action="store_true", help="print speed and memory on stderr")
    _add_engine_options(parser)
    _add_draft_options(parser)


def _add_models(command: _Command) -> None:
    pull = command("pull", "fetch a model into the Hugging Face cache", "pull")
    pull.add_argument(
        "repo",
        type=name,
        metavar="REPO[@REV]",
        help="OWNER/NAME, with a branch, tag or commit after @; or demo",
    )
    listing = command("list", "list the models in the Hugging Face cache", "list_models")
    listing.add_argument("--json", action="store_true", help="as a JSON array")
    remove = command("rm", "remove models from the Hugging Face cache", "remove")
    remove.add_argument(
        "repos", type=name, metavar="REPO", nargs="+", help="OWNER/NAME as `saragossa list` shows it; or demo"
    )


def _add_convert(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("src", type=name, metavar="SRC", help="a model folder, or a GGUF file")
    parser.add_argument("dst", type=name, metavar="DST", help="the new folder; it must not exist")
    parser.add_argument(
        "--bits", type=int, choices=(2, 3, 4, 5, 6, 8), help="quantise (default: keep the weights)"
    )
    parser.add_argument(
        "--mode",
        choices=("affine", "mxfp4", "mxfp8"),
        help="of quantisation (default: affine, which needs --bits)",
    )
    parser.add_argument(
        "--group-size", type=int, choices=(32, 64, 128), help="weights that share a scale (default: 64)"
    )
    parser.add_argument(
        "--dtype", choices=("bfloat16", "float16", "float32"), help="dtype of what is not quantised"
    )
    parser.add_argument(
        "--override",
        action="append",
        default=[],
        metavar="PATTERN=BITS[:GROUP]",
        help="other bits for modules with such a name, as 'lm_head=8', or =mxfp4, =mxfp8; =float leaves "
        "them; may be repeated",
    )
    parser.add_argument(
        "--no-mtp",
        dest="mtp",
        action="store_false",
        help="drop the multi-token prediction (default: keep it where the model has one)",
    )


def _add_bench(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", type=name, metavar="MODEL", help=_MODEL)
    parser.add_argument(
        "--prefill",
        type=positive_list,
        metavar="N,N",
        help="prompt lengths (default: 128,512,2048, as far as they fit the context)",
    )
    parser.add_argument(
        "--depths",
        type=whole_list,
        metavar="N,N",
        help="decode after as many tokens (default: 0,512,2048, as far as they fit)",
    )
    parser.add_argument("--tokens", type=positive, default=64, metavar="N", help="tokens decoded a run (64)")
    parser.add_argument("--repeat", type=positive, default=3, metavar="N", help="runs; the median counts (3)")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print one JSON object instead of the table")
    form.add_argument("--csv", action="store_true", help="print CSV instead of the table")
    parser.add_argument(
        "--plot", type=name, metavar="FILE.png", help="draw the figures (needs the devtools extra)"
    )
    parser.add_argument(
        "--prompt-file", type=name, metavar="FILE", help="with --speculate: the text to go on from"
    )
    _add_engine_options(parser)
    _add_draft_options(parser)


def _add_doctor(parser: argparse.ArgumentParser) -> None:
    what = parser.add_mutually_exclusive_group()
    what.add_argument(
        "--fits",
        type=name,
        metavar="MODEL",
        help="will this model fit, with which context; no weights are read",
    )
    what.add_argument(
        "--metal-report",
        type=name,
        metavar="FILE",
        help="try the Metal device; write FILE and the same as JSON",
    )
    what.add_argument(
        "--compare",
        nargs=2,
        metavar=("A", "B"),
        help="two ways to run a model, such as cpu, metal:exact, cpu:fused=off,isa=avx2, cpu@FOLDER, "
        "or a golden file: do they give the same",
    )
    parser.add_argument(
        "--context", type=positive, metavar="N", help="with --fits: the context that is wanted"
    )
    parser.add_argument(
        "--memory", metavar="SIZE", help="with --fits: as if so much memory were free, such as 8GiB"
    )
    parser.add_argument(
        "--model-dir",
        "--model",
        dest="model",
        type=name,
        metavar="MODEL",
        help="with --metal-report: time this model, which is here already; with --compare: run this one",
    )
    parser.add_argument("--json", action="store_true", help="as one JSON object")
    group = parser.add_argument_group("with --compare")
    prompt = group.add_mutually_exclusive_group()
    prompt.add_argument("--prompt", metavar="TEXT", help="the prompt, as it is (default: a text of ours)")
    prompt.add_argument("--ids", metavar="IDS", help='the prompt\'s token ids, "1 2 3"')
    prompt.add_argument("--tokens-file", type=name, metavar="FILE", help="a file of token ids")
    group.add_argument(
        "--max-tokens",
        type=positive,
        metavar="N",
        help="tokens to decode (default: 32, or the golden file's)",
    )
    group.add_argument(
        "--near-tie",
        type=float,
        metavar="X",
        help="margin up to which other tokens are a near tie (default: 0.1; 0.001 where both are exact)",
    )
    group.add_argument(
        "--tolerance",
        type=float,
        metavar="X",
        help="relative difference up to which layers agree (default: 0.05; 0.001 where both are exact)",
    )
    group.add_argument("--record", type=name, metavar="FILE", help="add the finding to FILE, as JSON")
