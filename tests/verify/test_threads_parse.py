"""Syntax trees of programs, parsed in several threads."""

import gc
import threading
import time

from curate.problem.branches import parse

SOURCE = "x = " + " + ".join(["a * (b + c[1:2])"] * 300)


def test_threads_may_parse_at_the_same_time():
    """With `ast.parse` itself, one in a hundred raises: the collector lets another thread go on."""
    raised = []

    def work():
        for _ in range(60):
            try:
                parse(SOURCE)
            except SystemError as error:
                raised.append(error)

    def yield_to_others(phase, info):
        time.sleep(0)

    threshold = gc.get_threshold()
    gc.callbacks.append(yield_to_others)
    gc.set_threshold(200)
    try:
        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        gc.set_threshold(*threshold)
        gc.callbacks.remove(yield_to_others)
    assert not raised
