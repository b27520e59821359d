"""What this machine is: processor, memory and its limits, as far as the system tells."""

from __future__ import annotations

import os
import platform
import subprocess
from pathlib import Path

ROOT = Path("/")


def describe() -> dict[str, str]:
    """A few facts that a figure needs beside it."""
    from saragossa import _core

    return {
        "platform": platform.platform(),
        "processor": processor(),
        "instruction sets": ", ".join(_core.instruction_sets()),
        "cores": f"{os.cpu_count()}, {_core.usable_cores()} used by default",
        "python": platform.python_version(),
    }


def processor(root: Path = ROOT) -> str:
    """The processor's name."""
    info = _read(root / "proc/cpuinfo")
    for key in ("model name", "Model", "Hardware"):
        for line in info.splitlines():
            name, _, value = line.partition(":")
            if name.strip() == key:
                return value.strip()
    return _sysctl("machdep.cpu.brand_string") or platform.processor() or platform.machine()


def total_memory(root: Path = ROOT) -> int:
    """Bytes of memory, the cgroup's limit where that is lower; 0: unknown."""
    total = _meminfo(root, "MemTotal") or int(_sysctl("hw.memsize") or 0)
    limit = cgroup_memory(root)
    return min(total, limit[0]) if limit else total


def available_memory(root: Path = ROOT) -> int:
    """Bytes that a new process may use without pushing others out; 0: unknown.

    Linux: MemAvailable, and what the cgroup leaves (files in its page cache count as free). macOS
    compresses and has no such figure: the total less a quarter.
    """
    free = _meminfo(root, "MemAvailable") or int(_sysctl("hw.memsize") or 0) * 3 // 4
    limit = cgroup_memory(root)
    return min(free, max(0, limit[0] - limit[1])) if limit else free


def cgroup_memory(root: Path = ROOT) -> tuple[int, int] | None:
    """(limit, in use) of the tightest memory cgroup, page cache not counted; None without a limit."""
    found = []
    for folder in _cgroup_folders(root):
        for limit_name, usage_name, file_key in (
            ("memory.max", "memory.current", "inactive_file"),
            ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
        ):
            limit, usage = _read(folder / limit_name).strip(), _read(folder / usage_name).strip()
            if (
                limit.isdigit() and usage.isdigit() and int(limit) < 1 << 60
            ):  # v1 writes "no limit" as a huge number
                stat = dict(
                    line.split(maxsplit=1)
                    for line in _read(folder / "memory.stat").splitlines()
                    if " " in line
                )
                found.append((int(limit), max(0, int(usage) - int(stat.get(file_key, "0")))))
    return min(found, key=lambda pair: pair[0] - pair[1], default=None)


def _cgroup_folders(root: Path) -> list[Path]:
    """Folders of this process's memory cgroup and its parents, v2 and v1."""
    folders = []
    for line in _read(root / "proc/self/cgroup").splitlines():
        _, controllers, path = [*line.split(":", 2), "", ""][:3]
        if controllers and "memory" not in controllers.split(","):
            continue
        base = root / "sys/fs/cgroup" / ("memory" if controllers else "")
        here = base / path.lstrip("/")
        while True:
            folders.append(here)
            if here == base or base not in here.parents:
                break
            here = here.parent
    return folders


def _meminfo(root: Path, key: str) -> int:
    for line in _read(root / "proc/meminfo").splitlines():
        name, _, value = line.partition(":")
        if name == key:
            return int(value.split()[0]) * 1024
    return 0


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _sysctl(name: str) -> str:
    if platform.system() != "Darwin":
        return ""
    try:
        return subprocess.run(
            ["/usr/sbin/sysctl", "-n", name], capture_output=True, text=True, timeout=5, check=True
        ).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""
