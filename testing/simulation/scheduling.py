"""How a simulated worker, which runs in a greenlet of its own, lets the others go on."""

from greenlet import greenlet


def switch_to_scheduler(worker: greenlet) -> None:
    """Suspend the worker until the scheduler, which started it, lets it go on."""
    scheduler = worker.parent
    assert scheduler is not None, "a worker is suspended by itself alone"
    scheduler.switch()
