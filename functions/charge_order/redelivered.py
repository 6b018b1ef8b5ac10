"""The rows of a batch's redelivered orders, read in one request: many of these messages are duplicates.

batch ─► RowsOfRedelivered ─► rows by order id ─► ChargeOrder: final ones need no claim
"""

from collections.abc import Mapping
from concurrent.futures import Executor, Future

from onecharge.contract.events import Event, OrderPlacedEvent
from onecharge.payments.charges.protocol import Payment
from onecharge.payments.charges.store import PaymentStore
from onecharge.payments.instruments import Instruments
from onecharge.runtime.aws import error_code
from onecharge.runtime.consumer import Batch

WAIT_SECONDS = 0.8
"""How long a batch waits for the rows. A request's own timeouts bound neither the name's resolution nor its sum."""


class RowsOfRedelivered:
    """Reads the rows. It only saves work: without them each delivery claims its row, and is refused.

    Args:
        thread: what reads; a batch does not wait for a read that hangs, nor begins another one beside it.
    """

    def __init__(self, store: PaymentStore, instruments: Instruments, *, thread: Executor) -> None:
        self._store, self._instruments, self._thread = store, instruments, thread
        self._reading: Future[dict[str, Payment]] | None = None

    def __call__(self, batch: Batch[Event]) -> Mapping[str, Payment]:
        """By order id; without those that could not be read in time."""
        order_ids = [event.data.order_id for event in batch.redelivered if isinstance(event, OrderPlacedEvent)]
        if not order_ids:
            return {}
        try:
            if self._reading and not self._reading.done():
                raise TimeoutError
            self._reading = self._thread.submit(self._store.read_batch, order_ids)
            return self._reading.result(timeout=WAIT_SECONDS)
        except Exception as error:  # Also a row that cannot be understood: its claim says so, and only it fails.
            self._instruments.count("RedeliveredNotRead")
            self._instruments.log("rows of redelivered orders not read", error=error_code(error))
            return {}
