"""Threads: each takes an item of its own, results come in order, and nothing is left changed."""

import threading

import pytest
import torch

from sswim import Forecaster
from sswim.bench import synthetic_series
from sswim.machine import on_threads
from sswim.network.layer import Workspace


@pytest.fixture(params=[1, 2, 3])
def threads(request):
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


def test_results_come_in_order_and_each_item_is_worked_on_by_one_thread(threads):
    seen = set()

    def work(item):
        seen.add(threading.get_ident())
        assert torch.get_num_threads() == 1 and not torch.is_grad_enabled()
        return item * item

    with torch.no_grad():
        assert list(on_threads(work, range(20))) == [i * i for i in range(20)]
    assert len(seen) <= threads and torch.get_num_threads() == threads
    assert (threading.get_ident() in seen) == (threads == 1)


def test_items_are_not_worked_on_long_before_they_are_asked_for(threads):
    begun = []
    results = on_threads(lambda item: begun.append(item), range(100))
    next(results)
    assert len(begun) <= threads + 1
    results.close()
    assert torch.get_num_threads() == threads


def test_an_error_in_an_item_reaches_the_caller_and_threads_are_as_before(threads):
    def work(item):
        if item == 3:
            raise ValueError("x: three")
        return item

    with pytest.raises(ValueError, match="three"):
        list(on_threads(work, range(10)))
    assert torch.get_num_threads() == threads


def test_a_workspace_is_not_shared_between_threads():
    work, like, found = Workspace(), torch.zeros(1), []
    here = work.take("a", like, 4)
    thread = threading.Thread(target=lambda: found.append(work.take("a", like, 4)))
    thread.start()
    thread.join()
    assert found[0].data_ptr() != here.data_ptr() and work.take("a", like, 4).data_ptr() == here.data_ptr()


def test_a_fit_is_the_same_bit_for_bit_on_any_number_of_threads():
    x, forecasts, before = synthetic_series(900, 5).numpy(), [], torch.get_num_threads()
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            model = Forecaster(48, 12, random_state=0, verbose=0, memory="64MB").fit(x)
            forecasts.append(torch.from_numpy(model.predict_windows(x[-200:])))
    finally:
        torch.set_num_threads(before)
    assert torch.equal(forecasts[0], forecasts[1]) and torch.equal(forecasts[0], forecasts[2])
