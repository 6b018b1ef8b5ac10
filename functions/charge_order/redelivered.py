"""The rows of a batch's redelivered orders, read in one request: most of these messages are duplicates.

batch ─► RowsOfRedelivered ─► rows by order id ─► ChargeOrder: final ones need no claim
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from onecharge.contract.events import Event, OrderPlacedEvent
from onecharge.payments.charges.protocol import Payment
from onecharge.payments.charges.store import PaymentStore
from onecharge.payments.instruments import Instruments
from onecharge.runtime.aws import error_code
from onecharge.runtime.consumer import Batch


@dataclass(frozen=True)
class RowsOfRedelivered:
    """Reads the rows. It only saves work: without them each delivery claims its row, and is refused.

    Args:
        store: with an impatient client, so that the batch does not wait for it.
    """

    store: PaymentStore
    instruments: Instruments

    def __call__(self, batch: Batch[Event]) -> Mapping[str, Payment]:
        """By order id; without those that could not be read."""
        order_ids = _order_ids(batch.redelivered)
        if not order_ids:
            return {}
        try:
            return self.store.read_batch(order_ids)
        except Exception as error:  # Also a row that cannot be understood: its claim says so, and only it fails.
            self.instruments.log("rows of redelivered orders not read", error=error_code(error))
            return {}


def _order_ids(events: Sequence[Event]) -> list[str]:
    return [event.data.order_id for event in events if isinstance(event, OrderPlacedEvent)]
