"""Sums on a Dask cluster: the same bit for bit, also if workers die, and clear words where a cluster cannot be used."""

import asyncio
import json
import os
import socket
import subprocess
import sys
import time

import pytest
import toys

from sswim.scale import Dask, Kept, cluster, resolve_executor

distributed = pytest.importorskip("distributed", reason="needs distributed: pip install 'sswim[dask]'")

GROUPS = [range(0, 11), range(11, 12), range(12, 45)]
WANTED = [toys.literal(list(group)) for group in GROUPS]


def make(workers):
    return distributed.LocalCluster(
        n_workers=workers, processes=True, threads_per_worker=1, dashboard_address=":0", silence_logs=50, memory_limit=0
    )


def wait_for(condition, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.05)


@pytest.fixture(scope="module")
def client():
    with make(2) as local, distributed.Client(local, set_as_default=False) as client:
        yield client


@pytest.mark.parametrize("work", [toys.plain, toys.sleepy])
def test_a_cluster_equals_threads(client, work):
    calls = []
    assert toys.same(Dask(client).sums(work, GROUPS, 1.0, lambda: calls.append(1)), WANTED)
    assert len(calls) == sum(map(len, GROUPS)) and client.status == "running"
    assert list(Dask(client).sums(work, [], 1.0)) == []


def test_an_address_is_enough(client):
    executor = resolve_executor(client.scheduler.address)
    assert toys.same(executor.sums(toys.plain, GROUPS, 1.0), WANTED)
    assert resolve_executor(client) == Dask(client)


def test_nothing_stays_on_the_cluster(client):
    sums = Dask(client).sums(toys.plain, [range(4)] * 10, 1.0)
    next(sums)
    sums.close()
    list(Dask(client).sums(toys.plain, GROUPS, 1.0))
    wait_for(lambda: not any(client.has_what().values()))


def test_work_that_nobody_waits_for_is_cancelled(client, tmp_path):
    log = tmp_path / "log"
    sums = Dask(client).sums(toys.noted, [[0], range(1, 100)], (str(log), 0.1))
    next(sums)
    sums.close()
    wait_for(lambda: not any(client.processing().values()))
    assert not any(client.has_what().values()) and len(log.read_text().split()) < 99


@pytest.mark.parametrize("work", [toys.dies_in_work, toys.dies_in_addition])
def test_a_killed_worker_costs_only_time(client, work, tmp_path):
    mark, calls = tmp_path / "mark", []
    assert toys.same(Dask(client).sums(work, GROUPS, str(mark), lambda: calls.append(1)), WANTED)
    assert mark.exists() and len(calls) == sum(map(len, GROUPS))


def test_an_error_of_the_work_reaches_the_caller(client, tmp_path):
    with pytest.raises(ValueError, match="^rows: five is too many$"):
        list(Dask(client).sums(toys.fails, [range(20)], str(tmp_path)))
    assert len([name for name in os.listdir(tmp_path) if name.startswith("5-")]) == 1  # not tried again


def test_few_results_are_alive(client, tmp_path):
    log = tmp_path / "log"
    assert next(Dask(client).sums(toys.counted, [range(400)], str(log))).items == 400
    assert max(map(int, log.read_text().split())) <= 16


def test_sums_on_a_cluster_can_be_kept(client, tmp_path):
    executor = Kept(Dask(client), tmp_path, "toy", toys.Sum)
    assert toys.same(executor.sums(toys.plain, GROUPS, 1.0), WANTED)
    assert toys.same(executor.sums(toys.always_dies, GROUPS, 1.0), WANTED)


def test_workers_that_always_die_end_in_an_error(client, monkeypatch):
    monkeypatch.setattr(client.cluster.scheduler, "allowed_failures", 1)
    with pytest.raises(RuntimeError, match="several workers of the cluster died on the same work. Most often memory ran out"):
        list(Dask(client).sums(toys.always_dies, [range(1)], None))


def test_nobody_at_the_address(monkeypatch):
    monkeypatch.setattr(cluster, "ANSWER", 1)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{free.getsockname()[1]}"
        with pytest.raises(ConnectionError, match=f"executor: no Dask scheduler answered at {address} within 1 s. Start one"):
            list(Dask(address).sums(toys.plain, GROUPS, 1.0))
    with pytest.raises(ConnectionError, match="executor: no Dask scheduler answered at nonsense://here"):
        list(Dask("nonsense://here").sums(toys.plain, GROUPS, 1.0))


def test_machines_without_the_library_are_told(monkeypatch):
    monkeypatch.setattr(cluster, "WORKER", 1)
    with distributed.LocalCluster(n_workers=0, dashboard_address=":0", silence_logs=50) as local:
        address = local.scheduler_address
        with pytest.raises(ConnectionError, match="executor: the cluster has no worker. Start one with `dask worker"):
            list(Dask(address).sums(toys.plain, GROUPS, 1.0))
        monkeypatch.setattr(cluster, "WORKER", 60)
        # The worker finds a broken library before ours: as if there were none.
        code = "import sys; sys.modules['sswim'] = None; from distributed.cli import dask_worker; dask_worker.main()"
        command = [sys.executable, "-c", code, address, "--no-nanny", "--no-dashboard", "--nthreads", "1"]
        worker = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            told = (
                "all machines of a Dask cluster need sswim==.* and torch==.*, but tcp://.* has no sswim. Run `pip install sswim"
            )
            with pytest.raises(RuntimeError, match=told):
                list(Dask(address).sums(toys.plain, GROUPS, 1.0))
        finally:
            worker.kill()
            worker.wait()


def test_machines_with_another_version_are_told(client, monkeypatch):
    monkeypatch.setattr("sswim._version.__version__", "9.9.9")  # of this process, and of the scheduler inside it
    with pytest.raises(RuntimeError, match=r"need sswim==9.9.9 and .*, but tcp://.* has sswim==.*, tcp://.* has sswim=="):
        list(Dask(client).sums(toys.plain, GROUPS, 1.0))


def test_what_is_no_client_is_refused():
    with pytest.raises(TypeError, match="client must be an address such as 'tcp://host:8786' or a distributed.Client, got 3"):
        Dask(3)

    async def asynchronous():
        async with (
            distributed.LocalCluster(n_workers=0, processes=False, asynchronous=True, dashboard_address=":0") as local,
            distributed.Client(local, asynchronous=True) as client,
        ):
            with pytest.raises(TypeError, match="executor must be a synchronous client"):
                resolve_executor(client)

    asyncio.run(asynchronous())


@pytest.mark.slow
def test_the_only_worker_is_killed(tmp_path):
    with make(1) as local, distributed.Client(local, set_as_default=False) as client:
        for work in (toys.dies_in_work, toys.dies_in_addition):
            assert toys.same(Dask(client).sums(work, GROUPS, str(tmp_path / work.__name__)), WANTED)


@pytest.mark.slow
def test_a_scheduler_that_ends_ends_the_work(tmp_path):
    file, log = tmp_path / "scheduler.json", tmp_path / "log"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}

    def start(name, *options):
        command = [
            sys.executable,
            "-m",
            f"distributed.cli.dask_{name}",
            "--scheduler-file",
            str(file),
            "--no-dashboard",
            *options,
        ]
        return subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    processes = [start("scheduler", "--port", "0", "--host", "127.0.0.1"), start("worker", "--nthreads", "1", "--no-nanny")]
    try:
        wait_for(file.exists)
        sums = Dask(json.loads(file.read_text())["address"]).sums(toys.noted, [[0], range(1, 400)], (str(log), 0.1))
        next(sums)
        processes[0].kill()
        with pytest.raises(RuntimeError, match="the work was cancelled, or the cluster's scheduler ended"):
            next(sums)
    finally:
        for process in processes:
            process.kill()
            process.wait()
