"""The thread pool: every task once, errors, loops inside loops, forks, its size."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from saragossa import _core_test as core


@pytest.mark.parametrize("threads", [1, 2, 3, 8])
@pytest.mark.parametrize("spin_us", [0, 50])
def test_every_task_runs_once(threads: int, spin_us: int) -> None:
    pool = core.ThreadPool(threads, spin_us)
    assert pool.size == threads
    for tasks in [0, 1, 2, threads - 1, threads, threads + 1, 100, 1001] * 20:
        assert pool.run_counts(tasks) == [1] * tasks


@pytest.mark.parametrize("workers", [1, 2, 3, 8])
def test_shares_are_gapless(workers: int) -> None:
    for tasks in (0, 1, 2, workers - 1, workers, 100, 1001):
        shares = [core.ThreadPool.share(tasks, w, workers) for w in range(workers)]
        assert [t for begin, end in shares for t in range(begin, end)] == list(range(tasks))


def test_own_tasks_ascend_and_others_are_taken_from_the_end() -> None:
    pool = core.ThreadPool(2)
    for slow in (0, 1) * 5:
        order = pool.run_order(40, slow)
        for worker in (0, 1):
            begin, end = core.ThreadPool.share(40, worker, 2)
            mine = [task for task, who in order if who == worker]
            own = [task for task in mine if begin <= task < end]
            taken = [task for task in mine if not begin <= task < end]
            assert own == sorted(own)
            assert taken == sorted(taken, reverse=True)
            assert mine == own + taken


def test_too_many_tasks_are_refused() -> None:
    with pytest.raises(RuntimeError, match="2147483648 tasks"):
        core.ThreadPool(1).run_empty(2**31)


def test_sleeping_workers_wake() -> None:
    pool = core.ThreadPool(3, 0)
    for _ in range(5):
        time.sleep(0.01)
        assert pool.run_counts(64) == [1] * 64


@pytest.mark.parametrize("bad", [0, 49, 99])
def test_error_of_a_task_reaches_the_caller(bad: int) -> None:
    pool = core.ThreadPool(3)
    for _ in range(50):
        with pytest.raises(RuntimeError, match=f"task {bad}"):
            pool.run_failing(100, bad)
        assert pool.run_counts(10) == [1] * 10


def test_loop_inside_a_loop_and_after_an_error() -> None:
    pool = core.ThreadPool(2)
    assert pool.run_nested(20, 30) == 600
    with pytest.raises(RuntimeError, match="task 0"):
        pool.run_failing(1, 0)
    assert pool.run_nested(20, 30) == 600


def test_callers_from_several_threads_take_turns() -> None:
    pool = core.ThreadPool(2)
    wrong: list[list[int]] = []

    def call() -> None:
        for _ in range(200):
            counts = pool.run_counts(37)
            if counts != [1] * 37:
                wrong.append(counts)

    callers = [threading.Thread(target=call) for _ in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert wrong == []


FORK = """
import os, warnings
warnings.simplefilter("ignore")
from saragossa import _core_test as core
pool = core.ThreadPool(3)
assert pool.run_counts(50) == [1] * 50
child = os.fork()
if child == 0:
    assert pool.run_counts(50) == [1] * 50
    own = core.ThreadPool(3)
    assert own.run_counts(50) == [1] * 50
    del pool, own
    os._exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
assert pool.run_counts(50) == [1] * 50
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_fork_neither_hangs_nor_loses_tasks() -> None:
    subprocess.run([sys.executable, "-c", FORK], check=True, timeout=30, env=with_path())


def test_exit_with_a_pool_alive() -> None:
    code = "from saragossa import _core_test as core; pool = core.ThreadPool(4); pool.run_counts(9)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=30, env=with_path())


def with_path() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}


def test_cpu_lists() -> None:
    assert core.parse_cpu_list("0-2,5\n") == [0, 1, 2, 5]
    assert core.parse_cpu_list("7") == [7]
    assert core.parse_cpu_list("") == []
    assert core.parse_cpu_list("0-99999999") == []
    assert core.parse_cpu_list("1,x,3") == [1]


def write(root: Path, files: dict[str, str]) -> str:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return str(root)


@pytest.mark.parametrize(
    ("files", "cores"),
    [
        ({}, 0),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "max 100000\n"}, 0),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "200000 100000\n"}, 2),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "150000 100000\n"}, 2),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "1000 100000\n"}, 1),
        (
            {
                "proc/self/cgroup": "0::/a/b\n",
                "sys/fs/cgroup/a/b/cpu.max": "max 100000\n",
                "sys/fs/cgroup/a/cpu.max": "300000 100000\n",
                "sys/fs/cgroup/cpu.max": "800000 100000\n",
            },
            3,
        ),
        ({"proc/self/cgroup": "0::/of/the/host\n", "sys/fs/cgroup/cpu.max": "400000 100000\n"}, 4),
        (
            {
                "proc/self/cgroup": "4:memory:/x\n2:cpu,cpuacct:/x\n0::/\n",
                "sys/fs/cgroup/cpu,cpuacct/x/cpu.cfs_quota_us": "250000\n",
                "sys/fs/cgroup/cpu,cpuacct/x/cpu.cfs_period_us": "100000\n",
            },
            3,
        ),
        (
            {
                "proc/self/cgroup": "2:cpu:/\n3:cpuset:/\n",
                "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n",
                "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
            },
            0,
        ),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "nonsense\n"}, 0),
    ],
)
def test_cgroup_quota(tmp_path: Path, files: dict[str, str], cores: int) -> None:
    assert core.cgroup_quota(write(tmp_path, files)) == cores


def test_performance_cores(tmp_path: Path) -> None:
    cpu = "sys/devices/system/cpu/cpu{}/{}"
    hybrid = {"sys/devices/cpu_core/cpus": "0-3\n"}
    for i in range(4):
        hybrid[cpu.format(i, "topology/thread_siblings_list")] = "0-1\n" if i < 2 else "2-3\n"
    for i in range(4, 8):
        hybrid[cpu.format(i, "topology/thread_siblings_list")] = f"{i}\n"
    root = write(tmp_path / "hybrid", hybrid)
    assert core.performance_cores(root, list(range(8))) == [0, 2]
    assert core.performance_cores(root, [1, 5, 6]) == [1], "affinity comes first"
    assert core.performance_cores(root, [5, 6]) == [5, 6], "only slow cores allowed: these"

    little = {cpu.format(i, "cpu_capacity"): "384\n" if i < 4 else "1024\n" for i in range(8)}
    assert core.performance_cores(write(tmp_path / "arm", little), list(range(8))) == [4, 5, 6, 7]
    assert core.performance_cores(str(tmp_path / "nothing"), [0, 1, 2]) == [0, 1, 2]


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="no affinity here")
def test_usable_cores_follow_affinity() -> None:
    allowed = os.sched_getaffinity(0)
    assert 1 <= core.usable_cores() <= len(allowed)
    try:
        os.sched_setaffinity(0, {min(allowed)})
        assert core.usable_cores() == 1
        assert core.ThreadPool(0).size == 1
    finally:
        os.sched_setaffinity(0, allowed)
